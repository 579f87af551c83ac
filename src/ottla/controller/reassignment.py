"""AlterPartitionReassignments and ListPartitionReassignments.

A reassignment first adds the new replicas to the list. Once they are in the ISR, `PartitionChange` removes the old
replicas. A reassignment without new replicas completes at once.
"""

from __future__ import annotations

from ottla.controller.assignments import check_manual_assignment
from ottla.controller.outcome import OK, refused
from ottla.controller.partition_change import Election, partition_change
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import PartitionRegistration, TopicImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from ottla.protocol.generated.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.generated.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.protocol.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.protocol.primitives import Message


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, _context: ControllerRequestContext
) -> Decision[Message, AlterPartitionReassignmentsResponse]:
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        partitions = []
        for target in paced(topic.partitions, 25):
            outcome = OK
            try:
                record = _alter(state, topic.name, target, factor_may_change=request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                outcome = refused(error)
            partitions.append(ReassignablePartitionResponse(target.partition_index, outcome.code, outcome.message))
        responses.append(ReassignableTopicResponse(topic.name, partitions))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None if responses else "",
        responses=responses,
    )
    return Decision(response, records)


def _alter(
    state: ControllerState, name: str, target: ReassignablePartition, *, factor_may_change: bool
) -> PartitionChangeRecord | None:
    topic = state.image.topics_by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(target.partition_index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{target.partition_index}."
        )
    if target.replicas is None:
        return _cancel(state, topic, target.partition_index, partition)
    check_manual_assignment(state, target.replicas, None)
    current = [replica for replica in partition.replicas if replica not in partition.adding]
    if not factor_may_change and len(current) != len(target.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(target.replicas)}",
        )
    return _reassign(state, topic, target.partition_index, partition, target.replicas)


def _reassign(
    state: ControllerState, topic: TopicImage, index: int, partition: PartitionRegistration, target: list[int]
) -> PartitionChangeRecord | None:
    removing = sorted(set(partition.replicas) - set(target))
    adding = sorted(set(target) - set(partition.replicas))
    change = partition_change(state, topic.name, topic.id, index, partition)
    change.replicas = [*target, *removing]
    if removing:
        change.removing = removing
    if adding:
        change.adding = adding
    return change.build()


def _cancel(
    state: ControllerState, topic: TopicImage, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    if not partition.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    unclean = state.unclean_election_enabled(topic.name)
    change = partition_change(state, topic.name, topic.id, index, partition)
    change.isr = [replica for replica in partition.isr if replica not in partition.adding]
    change.replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    if not change.isr and not unclean:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    if unclean:
        change.election = Election.UNCLEAN
    change.adding, change.removing = [], []
    return change.build()


def list_partition_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest, _context: ControllerRequestContext
) -> Decision[Message, ListPartitionReassignmentsResponse]:
    if request.topics is None:
        listed = [(topic, list(topic.partitions)) for topic in state.image.topics_by_name.values()]
    else:
        topics_by_name = state.image.topics_by_name
        listed = [
            (topics_by_name[topic.name], topic.partition_indexes)
            for topic in request.topics
            if topic.name in topics_by_name
        ]
    topics = []
    for topic, indexes in listed:
        ongoing = [
            OngoingPartitionReassignment(
                index, list(partition.replicas), list(partition.adding), list(partition.removing)
            )
            for index in paced(indexes)
            if (partition := topic.partitions.get(index)) is not None and partition.reassigning
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(topic.name, ongoing))
    return Decision(ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics))
