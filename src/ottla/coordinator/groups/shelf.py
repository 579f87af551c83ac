"""What the parts of the group machine share: the groups themselves, and the seams (time, timers, randomness).

Nobody but `GroupMachine.replay` puts a group on the shelf or takes one off.
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from typing import Protocol

from ottla.coordinator.decisions import TimedOperation
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.group import Group
from ottla.coordinator.settings import GroupSettings
from ottla.env.seams import Clock, RandomSource
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError


class OperationTimers(Protocol):
    """Deadlines by key; an operation that comes due runs as an event of its shard."""

    def schedule(self, key: Hashable, delay_ms: float, operation: TimedOperation) -> None: ...

    def cancel(self, key: Hashable) -> None: ...


class Shelf:
    def __init__(self, settings: GroupSettings, clock: Clock, random: RandomSource, timers: OperationTimers) -> None:
        self.settings = settings
        self.clock = clock
        self.random = random
        self.timers = timers
        self.groups: dict[str, Group] = {}
        self.image = MetadataImage()
        """The committed metadata; the machine is told of each change."""

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group if it is a classic one."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def new_member_id(self, prefix: str) -> str:
        """The client id (or the instance id) and a random UUID: who reads a list of members can tell them apart."""
        return f"{prefix}-{uuid.UUID(bytes=self.random.token_bytes(16), version=4)}"


def session_key(group_id: str, member_id: str) -> Hashable:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> Hashable:
    return ("join", group_id)


def sync_key(group_id: str) -> Hashable:
    return ("sync", group_id)
