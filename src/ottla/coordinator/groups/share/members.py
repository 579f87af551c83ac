"""A member of a share group: a value. A change makes a new one, and only replay puts it into the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH
from ottla.model.ids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    member_epoch: int = JOIN_GROUP_EPOCH
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)
