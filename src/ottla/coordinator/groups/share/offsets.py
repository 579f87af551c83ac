"""Start offsets of a share group, changed by an administrator: only while the group has no members.

Each change is two events of the group: the first before the request to the share coordinator, the second after its
answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.share.describe import share_group
from ottla.coordinator.groups.share.group import SharedTopic, ShareGroup
from ottla.coordinator.groups.share.initialization import (
    Indexes,
    StateRequest,
    deleted_record,
    deleting_record,
    initialized_record,
    initializing_record,
    uninitialized_record,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.generated.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.generated.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from ottla.protocol.generated.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponseTopic


class OffsetAlteration(NamedTuple):
    response: AlterShareGroupOffsetsResponse
    state_request: StateRequest


class OffsetDeletion(NamedTuple):
    """The topics refused at once, and the partitions whose state the share coordinator must delete."""

    refused: list[DeleteShareGroupOffsetsResponseTopic]
    partitions: Indexes


class ShareOffsets:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def initialized_partitions(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Answered with topic id -> partitions; a group that does not exist has none."""
        draft = Draft()
        group = self._context.groups.get(group_id)
        topics = group.initialized if isinstance(group, ShareGroup) else {}
        draft.answer(waiter, {topic_id: topic.partitions for topic_id, topic in topics.items()})
        return draft.decide()

    # Altering: creates a missing group

    def alter(self, request: AlterShareGroupOffsetsRequest, waiter: Waiter) -> GroupDecision:
        group = self._context.groups.get(request.group_id)
        if group is None:
            group = ShareGroup(request.group_id)
        if not isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
        group.validate_delete()
        topics: dict[Uuid, SharedTopic] = {}
        offsets: dict[Uuid, dict[int, int]] = {}
        response = AlterShareGroupOffsetsResponse(
            responses=[self._altered(topic, topics, offsets) for topic in request.topics]
        )
        draft = Draft()
        if topics:
            draft.records.append(initializing_record(group, topics, self._context.image))
        draft.answer(waiter, OffsetAlteration(response, StateRequest(request.group_id, group.group_epoch, offsets)))
        return draft.decide()

    def _altered(
        self,
        requested: AlterShareGroupOffsetsRequestTopic,
        topics: dict[Uuid, SharedTopic],
        offsets: dict[Uuid, dict[int, int]],
    ) -> AlterShareGroupOffsetsResponseTopic:
        topic = self._context.image.topics_by_name.get(requested.topic_name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = []
        for row in requested.partitions:
            if topic is not None and row.partition_index in topic.partitions:
                offsets.setdefault(topic.id, {})[row.partition_index] = row.start_offset
                rows.append(AlterShareGroupOffsetsResponsePartition(row.partition_index))
            else:
                rows.append(AlterShareGroupOffsetsResponsePartition(row.partition_index, unknown, unknown.message))
        if topic is None:
            return AlterShareGroupOffsetsResponseTopic(requested.topic_name, partitions=rows)
        partitions = frozenset(offsets.get(topic.id, {}))
        topics[topic.id] = SharedTopic(requested.topic_name, partitions, self._context.clock.time_ms())
        return AlterShareGroupOffsetsResponseTopic(requested.topic_name, topic.id, rows)

    def initialized(self, group_id: str, partitions: Indexes, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        group = self._context.groups.get(group_id)
        if isinstance(group, ShareGroup) and partitions:
            draft.records.append(initialized_record(group, partitions, self._context))
        draft.answer(waiter, None)
        return draft.decide()

    def uninitialized(self, group_id: str, partitions: Indexes, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        group = self._context.groups.get(group_id)
        if isinstance(group, ShareGroup) and group.initializing and partitions:
            draft.records.append(uninitialized_record(group, partitions, self._context))
        draft.answer(waiter, None)
        return draft.decide()

    # Deleting

    def delete(self, request: DeleteShareGroupOffsetsRequest, waiter: Waiter) -> GroupDecision:
        group = share_group(self._context, request.group_id)
        group.validate_delete()
        draft = Draft()
        refused: list[DeleteShareGroupOffsetsResponseTopic] = []
        partitions_to_delete: dict[Uuid, frozenset[int]] = {}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for requested in request.topics if group.has_state_partitions else ():
            topic = self._context.image.topics_by_name.get(requested.topic_name)
            if topic is None:
                refused.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        requested.topic_name, error_code=unknown, error_message=unknown.message
                    )
                )
            elif topic.id in group.initialized:
                partitions_to_delete[topic.id] = group.initialized[topic.id].partitions
            elif topic.id in group.deleting:
                partitions_to_delete[topic.id] = frozenset(topic.partitions)
            else:
                message = "There is no offset information to delete."
                refused.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        requested.topic_name, error_code=unknown, error_message=message
                    )
                )
        if partitions_to_delete:
            draft.records.append(deleting_record(group, partitions_to_delete, self._context))
        draft.answer(waiter, OffsetDeletion(refused, partitions_to_delete))
        return draft.decide()

    def delete_group(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """Before a share group is deleted: answered with the partitions whose state the share coordinator must
        delete."""
        draft = Draft()
        partitions_to_delete: dict[Uuid, frozenset[int]] = {}
        group = self._context.groups.get(group_id)
        if isinstance(group, ShareGroup) and group.has_state_partitions:
            group.validate_delete()
            for topics in (group.initialized, group.initializing):
                for topic_id, shared in topics.items():
                    partitions_to_delete[topic_id] = partitions_to_delete.get(topic_id, frozenset()) | shared.partitions
            for topic_id in group.deleting:
                topic = self._context.image.topics_by_id.get(topic_id)
                if topic is not None:
                    partitions_to_delete[topic_id] = frozenset(topic.partitions)
            draft.records.append(deleting_record(group, partitions_to_delete, self._context, whole_group=True))
        draft.answer(waiter, partitions_to_delete)
        return draft.decide()

    def deleted(self, group_id: str, topics: Collection[Uuid], waiter: Waiter) -> GroupDecision:
        draft = Draft()
        group = self._context.groups.get(group_id)
        if isinstance(group, ShareGroup) and topics:
            draft.records.append(deleted_record(group, topics, self._context))
        draft.answer(waiter, None)
        return draft.decide()
