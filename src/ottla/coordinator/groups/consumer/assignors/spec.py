"""What an assignor is given, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.coordinator.groups.consumer.members import TargetPartitions
from ottla.model.ids import Uuid

Assignment: TypeAlias = dict[str, TargetPartitions]
"""member id -> what it should have; a member that is missing gets nothing."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberSpec:
    instance_id: str | None
    topics: frozenset[Uuid]
    """Subscribed topics that exist."""
    target: TargetPartitions
    """What it should have had so far."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, ConsumerMemberSpec]
    """In the order in which to treat them."""
    partition_counts: Mapping[Uuid, int]
    """Of every topic that a member wants."""
    homogeneous: bool
    """All members want the same topics."""
