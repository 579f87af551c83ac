"""A member of a streams group: one stream thread. A member is a value, and only replay replaces it in the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH
from ottla.coordinator.groups.streams.tasks import NOTHING_ASSIGNED, AssignedTasks


class StreamsMemberState(IntEnum):
    """Records store these numbers."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def read(cls, value: int) -> StreamsMemberState:
        """A state of a later version of Kafka: the member must join again."""
        return cls(value) if value in _MEMBER_STATES else cls.UNKNOWN


_MEMBER_STATES = frozenset(StreamsMemberState)


class UserEndpoint(NamedTuple):
    """Where the member answers interactive queries (application.server)."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    member_id: str
    member_epoch: int = JOIN_GROUP_EPOCH
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.member_epoch == target_epoch

    def moved_to(
        self, state: StreamsMemberState, member_epoch: int, assigned: AssignedTasks, pending_revocation: AssignedTasks
    ) -> StreamsMember:
        """The member after one step; the member stores its earlier epoch, because the client may miss the answer."""
        return replace(
            self,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, subtopology: str, partition: int) -> int | None:
        """The epoch since which the member has had this active task; None when the member does not have the task."""
        for tasks in (self.assigned, self.pending_revocation):
            epoch = tasks.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
