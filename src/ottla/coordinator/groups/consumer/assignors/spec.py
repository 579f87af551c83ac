"""The input and the output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.coordinator.groups.consumer.members import TargetPartitions
from ottla.model.ids import Uuid

Assignment: TypeAlias = dict[str, TargetPartitions]
"""member id -> target; a missing member gets nothing."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberSpec:
    instance_id: str | None
    topics: frozenset[Uuid]
    """Subscribed topics that exist."""
    target: TargetPartitions
    """The member's last target."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, ConsumerMemberSpec]
    """In the order in which to treat them."""
    partition_counts: Mapping[Uuid, int]
    """Of every topic that a member wants."""
    homogeneous: bool
    """All members want the same topics."""
