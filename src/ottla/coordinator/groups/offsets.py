"""OffsetCommit, OffsetFetch and OffsetDelete.

The topics and partitions of a request exist, and in versions with topic ids carry both id and name: the handlers see
to that. Nothing here changes an offset; the records do, when they are replayed.
"""

from __future__ import annotations

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter, answered
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.group import Group, PartitionCheck
from ottla.coordinator.groups.offset_store import CommittedOffset, OffsetStore, TopicOffsets
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.records import OffsetCommitRecord, offset_commit_value
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid, time_after
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.generated.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.generated.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.generated.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_OFFSET = -1
_DEFAULT_RETENTION_MS = -1
_GROUP_ID_NOT_FOUND_FROM = 9


class OffsetRequests:
    def __init__(self, context: ShardContext, rebalance: Rebalance, store: OffsetStore) -> None:
        self._context = context
        self._rebalance = rebalance
        self._store = store

    # Commit

    def commit(self, version: int, request: OffsetCommitRequest, waiter: Waiter) -> GroupDecision:
        check = self._validate_commit(version, request)
        draft = Draft()
        response = OffsetCommitResponse()
        for topic in request.topics:
            answer = OffsetCommitResponseTopic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                code = self._commit_one(request, topic, partition, check, draft)
                answer.partitions.append(OffsetCommitResponsePartition(partition.partition_index, code))
            response.topics.append(answer)
        draft.answer(waiter, response)
        return draft.decide()

    def _commit_one(
        self,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
        check: PartitionCheck | None,
        draft: Draft,
    ) -> ErrorCode:
        metadata = partition.committed_metadata
        if metadata is not None and utf16_length(metadata) > self._context.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if check is not None:
            check(topic.name, topic.topic_id, partition.partition_index)
        now_ms = self._context.clock.time_ms()
        retention_ms = request.retention_time_ms
        expire_ms = -1 if retention_ms == _DEFAULT_RETENTION_MS else time_after(now_ms, retention_ms)
        value = offset_commit_value(
            partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms, topic.topic_id
        )
        draft.records.append(OffsetCommitRecord(request.group_id, topic.name, partition.partition_index, value))
        return ErrorCode.NONE

    def _validate_commit(self, version: int, request: OffsetCommitRequest) -> PartitionCheck | None:
        group = self._context.groups.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            # A consumer without group management, or an administrator: replaying its commit makes a simple group.
            if epoch < 0:
                return None
            if version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        check = group.validate_offset_commit(request.member_id, request.group_instance_id, epoch, version=version)
        if isinstance(group, ClassicGroup):
            self._rebalance.touch_committing(group, request.member_id)
        return check

    # Fetch

    def fetch(self, request: OffsetFetchRequestGroup, waiter: Waiter, *, require_stable: bool) -> GroupDecision:
        """`topics` of None asks for all topics. A group that does not exist has no offsets, which is not an error."""
        group = self._context.groups.get(request.group_id)
        if group is not None:
            group.validate_offset_fetch(request.member_id, request.member_epoch)
        topics = self._store.topics(request.group_id)
        if request.topics is None:
            answers = self._fetch_all(request.group_id, topics, require_stable=require_stable)
        else:
            answers = [
                self._fetch_topic(request.group_id, topics, topic, require_stable=require_stable)
                for topic in request.topics
            ]
        return answered(waiter, OffsetFetchResponseGroup(request.group_id, answers))

    def _fetch_all(
        self, group_id: str, topics: TopicOffsets, *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        answers = []
        for name, offsets in topics.items():
            current = self._topic_id(name)
            partitions = [
                self._fetched(index, offset, unstable=require_stable and self._store.is_pending(group_id, name, index))
                for index, offset in offsets.items()
                if not _other_topic(offset.topic_id, current)
            ]
            if partitions:
                answers.append(OffsetFetchResponseTopics(name, ZERO_UUID, partitions))
        return answers

    def _fetch_topic(
        self, group_id: str, topics: TopicOffsets, topic: OffsetFetchRequestTopics, *, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        offsets = topics.get(topic.name, {})
        topic_id = self._topic_id(topic.name) if topic.topic_id == ZERO_UUID else topic.topic_id
        partitions = []
        for index in topic.partition_indexes:
            offset = offsets.get(index)
            if offset is not None and _other_topic(offset.topic_id, topic_id):
                offset = None
            unstable = require_stable and self._store.is_pending(group_id, topic.name, index)
            partitions.append(self._fetched(index, offset, unstable=unstable))
        return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)

    def _topic_id(self, name: str) -> Uuid:
        """The id of the topic that has the name now: after a topic was created again, the log may lack tombstones of
        the old topic."""
        topic = self._context.image.topics_by_name.get(name)
        return ZERO_UUID if topic is None else topic.id

    @staticmethod
    def _fetched(index: int, offset: CommittedOffset | None, *, unstable: bool) -> OffsetFetchResponsePartitions:
        if unstable:
            return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if offset is None:
            return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "")
        return OffsetFetchResponsePartitions(index, offset.offset, offset.leader_epoch, offset.metadata)

    # Delete

    def delete(self, request: OffsetDeleteRequest, waiter: Waiter) -> GroupDecision:
        group = self._context.group(request.group_id)
        group.validate_offset_delete()
        draft = Draft()
        topics = [self._delete_topic(group, topic, draft) for topic in request.topics]
        draft.answer(waiter, OffsetDeleteResponse(topics=topics))
        return draft.decide()

    def _delete_topic(self, group: Group, topic: OffsetDeleteRequestTopic, draft: Draft) -> OffsetDeleteResponseTopic:
        subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        answer = OffsetDeleteResponseTopic(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            answer.partitions.append(OffsetDeleteResponsePartition(index, code))
            if not subscribed and self._has_offset(group.group_id, topic.name, index):
                draft.records.append(OffsetCommitRecord(group.group_id, topic.name, index, None))
        return answer

    def _has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        committed = self._store.get(group_id, topic, partition)
        return committed is not None or self._store.is_pending(group_id, topic, partition)


def _other_topic(committed: Uuid, requested: Uuid) -> bool:
    """The offset belongs to a deleted topic of the same name."""
    return ZERO_UUID not in (committed, requested) and committed != requested


def utf16_length(text: str) -> int:
    """Kafka counts UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
