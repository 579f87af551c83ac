"""What consumer, share and streams groups have in common: the coordinator assigns their members.

Epochs show how far the group, its target and each member are. Members are values: a change makes a new value, and only
replay puts the new value into the group.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from ottla.coordinator.groups.group import Group
from ottla.model.errors import ErrorCode, KafkaError

JOIN_GROUP_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
LEAVE_GROUP_STATIC_EPOCH = -2
_FIRST_EPOCH = 1

MemberT = TypeVar("MemberT")
TargetT = TypeVar("TargetT")


class AssignedGroup(Group, Generic[MemberT, TargetT]):
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberT] = {}
        self.targets: dict[str, TargetT] = {}
        self.refresh_due = True
        """The topics may have changed since the metadata hash was computed."""

    def refreshed(self) -> None:
        """The hash in the log is the hash of the current topics and of the members in the log.

        Never called together with a record that changes the hash, because the log may refuse that record. The next
        heartbeat finds the hash in the log and calls this method.
        """
        self.refresh_due = False

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    @abstractmethod
    def put(self, member: MemberT) -> None:
        """Add the member, or replace the member with the same id."""

    @abstractmethod
    def remove(self, member_id: str) -> None: ...
