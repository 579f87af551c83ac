"""A share group. Durable is all but `refresh_due` and the timestamps of topics; changed by `replay` only."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ottla.coordinator.groups.assigned_group import AssignedGroup
from ottla.coordinator.groups.group import GroupKind, PartitionCheck
from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.groups.share import group_records
from ottla.coordinator.groups.share.members import Partitions, ShareMember
from ottla.coordinator.records import CoordinatorRecord
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid

PROTOCOL_TYPE = "share"


class SharedTopic(NamedTuple):
    """Partitions of a topic whose state is, or is becoming, known to the share coordinator."""

    name: str
    partitions: frozenset[int]
    since_ms: int = 0


class ShareGroup(AssignedGroup[ShareMember, Partitions]):
    kind = GroupKind.SHARE
    protocol_type = PROTOCOL_TYPE
    expires = False

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics: Counter[str] = Counter()
        """Names, by how many members subscribe to them."""
        self.initializing: dict[Uuid, SharedTopic] = {}
        self.initialized: dict[Uuid, SharedTopic] = {}
        self.deleting: frozenset[Uuid] = frozenset()
        self.has_state_partitions = False
        """Whether the share coordinator has or had a state of this group."""

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def topics_with(self, old: ShareMember | None, new: ShareMember | None) -> set[str]:
        """The topics that the group reads after `new` has replaced `old`."""
        after = self.topics.copy()
        if old is not None and old.member_id in self.members:
            after.subtract(old.subscribed_topic_names)
        if new is not None:
            after.update(new.subscribed_topic_names)
        return {name for name, count in after.items() if count > 0}

    # Offsets and the end of the group

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, version: int, transactional: bool = False
    ) -> PartitionCheck | None:
        del member_id, group_instance_id, epoch, version, transactional
        raise self._no_offsets()

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """As for a group that does not exist: the response has no offsets."""

    def validate_offset_delete(self) -> None:
        raise self._no_offsets()

    def _no_offsets(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_records.group_tombstones(self.group_id, list(self.members))

    def unused_since(self, offset: CommittedOffset) -> int | None:
        del offset
        return None

    # Replay

    def put(self, member: ShareMember) -> None:
        self.remove(member.member_id)
        self.members[member.member_id] = member
        self.topics.update(member.subscribed_topic_names)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.topics.subtract(member.subscribed_topic_names)
            self.topics = +self.topics
