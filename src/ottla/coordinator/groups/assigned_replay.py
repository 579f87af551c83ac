"""Replays the records that consumer, share and streams groups have in common. Only replay changes durable state.

A tombstone for a missing group or member does nothing: compaction may have removed the earlier records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from ottla.coordinator.groups.assigned_group import AssignedGroup
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.records import GroupKindRecord
from ottla.env.logging import get_logger
from ottla.protocol.primitives import Message

log = get_logger(__name__)

_NO_TARGET_EPOCH = -1

Handler: TypeAlias = Callable[[Any, Any], None]
GroupT = TypeVar("GroupT", bound=AssignedGroup[Any, Any])


class MemberRecords(Protocol):
    """A kind's `group_records`: converts record values to members and targets."""

    def with_metadata(self, member: Any, value: Any, /) -> Any: ...

    def with_assignment(self, member: Any, value: Any, /) -> Any: ...

    def target_from(self, value: Any, /) -> Any: ...


class AssignedReplay(ABC, Generic[GroupT]):
    prefix: ClassVar[str]
    """The prefix of the key classes' names: handlers are found by name, so that no key class is imported for the
    lookup."""
    records: MemberRecords
    member_class: type[Any]
    group_class: type[GroupT]

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._handlers: dict[str, Handler] = {
            "Metadata": self._group,
            "MemberMetadata": self._member,
            "TargetAssignmentMetadata": self._target_epoch,
            "TargetAssignmentMember": self._target,
            "CurrentMemberAssignment": self._current,
            **self._more_handlers(),
        }

    def _more_handlers(self) -> dict[str, Handler]:
        """For the records that only this kind has."""
        return {}

    @abstractmethod
    def _without_assignment(self, member: Any) -> Any:
        """The member after the tombstone of its current assignment."""

    def _wrongs(self, group: Group) -> bool:
        """Whether a record of this kind must not replace `group`, which is of a different kind."""
        del group
        return False

    def replay(self, record: GroupKindRecord) -> None:
        handler = self._handlers.get(type(record.key).__name__.removeprefix(self.prefix).removesuffix("Key"))
        if handler is not None:
            handler(record.key, record.value)

    def _find(self, key: Any, value: Message | None) -> GroupT | None:
        """The group; a record with a value creates a missing group."""
        group = self._context.groups.get(key.group_id)
        if isinstance(group, self.group_class):
            return group
        if value is None:
            return None
        if group is not None and self._wrongs(group):
            log.error("group.replaced", group=key.group_id, record=type(key).__name__)
        new_group = self._context.groups[key.group_id] = self.group_class(key.group_id)
        return new_group

    def _group(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            del self._context.groups[key.group_id]
        else:
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
            self._take_metadata(group, value)

    def _take_metadata(self, group: GroupT, value: Any) -> None:
        """Replay the fields of the metadata record that only this kind of group has."""

    def _member(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.remove(key.member_id)
        else:
            group.put(self.records.with_metadata(self._member_of(group, key.member_id), value))

    def _target_epoch(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is not None:
            group.assignment_epoch = _NO_TARGET_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _target(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is None:
            group.targets.pop(key.member_id, None)
        else:
            group.targets[key.member_id] = self.records.target_from(value)

    def _current(self, key: Any, value: Any) -> None:
        group = self._find(key, value)
        if group is None:
            return
        if value is not None:
            group.put(self.records.with_assignment(self._member_of(group, key.member_id), value))
        elif key.member_id in group.members:
            group.put(self._without_assignment(group.members[key.member_id]))

    def _member_of(self, group: GroupT, member_id: str) -> Any:
        """The member, or a new member: the two records of a member may come in either order."""
        return group.members.get(member_id) or self.member_class(member_id)
