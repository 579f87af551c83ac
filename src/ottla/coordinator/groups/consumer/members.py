"""A member of a consumer group: a value. A change makes a new one, and only replay puts it into the group.

Each partition is stored with the epoch at which the member got the partition. An offset commit of an older epoch is
accepted for the partitions that the member has had since that epoch (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH
from ottla.coordinator.groups.classic.members import Protocols
from ottla.model.ids import Uuid

AssignedPartitions: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""topic id -> partition -> the member epoch at which it was assigned."""

TargetPartitions: TypeAlias = Mapping[Uuid, frozenset[int]]


class ConsumerMemberState(IntEnum):
    """Records store these numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def read(cls, value: int) -> ConsumerMemberState:
        """A state of a later version of Kafka: the member must join again."""
        return cls(value) if value in _MEMBER_STATES else cls.UNKNOWN


_MEMBER_STATES = frozenset(ConsumerMemberState)


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a member of the classic protocol has in addition."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    member_epoch: int = JOIN_GROUP_EPOCH
    previous_member_epoch: int = -1
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)
    classic: ClassicMember | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is ConsumerMemberState.STABLE and self.member_epoch == target_epoch

    def moved_to(
        self,
        state: ConsumerMemberState,
        member_epoch: int,
        assigned: AssignedPartitions,
        pending_revocation: AssignedPartitions,
    ) -> ConsumerMember:
        """The member after one step; the member stores its earlier epoch, because the client may miss the answer."""
        return replace(
            self,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch since which the member has had this partition; None when the member does not have the partition."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
