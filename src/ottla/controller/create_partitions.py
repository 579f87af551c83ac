"""CreatePartitions: more partitions for a topic, placed or assigned by hand."""

from __future__ import annotations

from collections import Counter

from ottla.controller.assignments import manual_partition, placed_partitions
from ottla.controller.outcome import MAX_RECORDS_PER_USER_OP, OK, ApiError, refused
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import PartitionRegistration
from ottla.metadata.snapshot import partition_record
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.primitives import Message


def create_partitions(
    state: ControllerState, request: CreatePartitionsRequest, _context: ControllerRequestContext
) -> Decision[Message, CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    results = [
        _result(name, ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in counts.items()
        if count > 1
    ]
    records: list[Message] = []
    for topic in paced(request.topics, 10):
        if counts[topic.name] > 1:
            continue
        try:
            records += _grow(state, topic, MAX_RECORDS_PER_USER_OP - len(records))
            outcome = OK
        except KafkaError as error:
            outcome = refused(error)
        results.append(_result(topic.name, outcome))
    return Decision(CreatePartitionsResponse(results=results), [] if request.validate_only else records)


def _grow(state: ControllerState, topic_request: CreatePartitionsTopic, room: int) -> list[Message]:
    """`room`: the partitions that the request may still make. The limit is one of the request, not of each topic."""
    topic = state.image.topics_by_name.get(topic_request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if topic_request.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if topic_request.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic_request.name} currently has {current} partition(s); "
            f"{topic_request.count} would not be an increase.",
        )
    additional = topic_request.count - current
    if additional > room:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    factor = len(next(iter(topic.partitions.values())).replicas)
    partitions = _new_partitions(state, topic_request, current, additional, factor)
    version = state.image.metadata_version
    return [
        partition_record(topic.id, current + i, partition, version) for i, partition in enumerate(paced(partitions, 3))
    ]


def _new_partitions(
    state: ControllerState, topic_request: CreatePartitionsTopic, first: int, additional: int, factor: int
) -> list[PartitionRegistration]:
    if topic_request.assignments is None:
        return placed_partitions(state, additional, factor)
    if len(topic_request.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic_request.assignments)} "
            "assignment(s) were specified.",
        )
    return [
        manual_partition(state, first + i, assignment.broker_ids, factor)
        for i, assignment in enumerate(paced(topic_request.assignments, 5))
    ]


def _result(name: str, error: ApiError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
