"""CreateTopics: names, configs and assignments checked, then Topic, Config and Partition records.

Each topic stands for itself: one that is refused does not stop the others. `validate_only` decides everything and
writes nothing.
"""

from __future__ import annotations

from collections import Counter

from ottla.controller.assignments import manual_partition, placed_partitions
from ottla.controller.configs import SET, config_changes
from ottla.controller.outcome import MAX_RECORDS_PER_USER_OP, refused
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import RESOURCE_TOPIC, PartitionRegistration
from ottla.metadata.records import TopicRecord
from ottla.metadata.snapshot import partition_record
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC, Uuid
from ottla.model.pace import paced
from ottla.model.topic_names import check_topic_name, collision_key, collision_keys, has_collision_chars
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.protocol.primitives import Message


def create_topics(
    state: ControllerState, request: CreateTopicsRequest, context: ControllerRequestContext
) -> Decision[Message, CreateTopicsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    records: list[Message] = []
    _check_total(state, request)
    shown = ShownConfigs(state)
    may_collide = any(has_collision_chars(topic.name) for topic in request.topics)
    collisions = collision_keys(state.image.topics_by_name) if may_collide else {}
    lower_case = {name.lower(): name for name in state.image.topics_by_name} if state.settings.names_ignore_case else {}
    for topic in paced(request.topics, 30):
        if counts[topic.name] > 1 or topic.name == METADATA_TOPIC:
            continue
        try:
            _check_name(state, topic.name, collisions)
            _check_case(topic.name, lower_case)
            result, topic_records = _create(state, topic, context, shown)
            if state.settings.names_ignore_case:
                lower_case[topic.name.lower()] = topic.name
        except KafkaError as error:
            result, topic_records = _failed(topic.name, error), []
        results.append(result)
        records += topic_records
    # As in Kafka, the refusals of the broker come after the answers of the controller.
    results += [
        _failed(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in counts.items()
        if count > 1
    ]
    if counts[METADATA_TOPIC] == 1:
        prohibited = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        results.append(_failed(METADATA_TOPIC, KafkaError(ErrorCode.INVALID_REQUEST, prohibited)))
    return Decision(CreateTopicsResponse(topics=results), [] if request.validate_only else records)


def _check_total(state: ControllerState, request: CreateTopicsRequest) -> None:
    partition_count = sum(
        len(topic.assignments)
        or (state.settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions)
        for topic in request.topics
    )
    if partition_count > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create(
    state: ControllerState, topic: CreatableTopic, context: ControllerRequestContext, shown: ShownConfigs
) -> tuple[CreatableTopicResult, list[Message]]:
    config_records = _config_records(state, topic, context)
    partitions = _partitions(state, topic)
    topic_id = state.new_uuid()
    version = state.image.metadata_version
    records: list[Message] = [TopicRecord(topic.name, topic_id), *config_records]
    records += [
        partition_record(topic_id, index, partition, version) for index, partition in enumerate(paced(partitions, 3))
    ]
    return _succeeded(topic, topic_id, partitions, context, shown), records


def _check_name(state: ControllerState, name: str, collisions: dict[str, str]) -> None:
    if name in state.image.topics_by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_topic_name(name)
    colliding = collisions.get(collision_key(name)) if has_collision_chars(name) else None
    if colliding is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}")


def _check_case(name: str, lower_case: dict[str, str]) -> None:
    """Kafka creates both topics, and they share their folders. Ottla refuses the second topic."""
    colliding = lower_case.get(name.lower())
    if colliding is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {colliding}: the file system of log.dirs ignores case",
        )


def _config_records(state: ControllerState, topic: CreatableTopic, context: ControllerRequestContext) -> list[Message]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    if not topic.configs:
        return []
    operations = {config.name: (SET, config.value) for config in topic.configs}
    return config_changes(state, (RESOURCE_TOPIC, topic.name), operations, context, newly_created=True)


def _partitions(state: ControllerState, topic: CreatableTopic) -> list[PartitionRegistration]:
    if topic.assignments:
        return _manual_partitions(state, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    settings = state.settings
    count = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    try:
        return placed_partitions(state, count, factor)
    except KafkaError as error:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {error.message}"
        ) from error


def _manual_partitions(state: ControllerState, topic: CreatableTopic) -> list[PartitionRegistration]:
    for value, what in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    partitions: dict[int, PartitionRegistration] = {}
    factor: int | None = None
    for assignment in paced(topic.assignments, 5):
        index = assignment.partition_index
        if index in partitions:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        partitions[index] = manual_partition(state, index, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
    if set(partitions) != set(range(len(partitions))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [partitions[index] for index in range(len(partitions))]


class ShownConfigs:
    """The settings of new topics as the response shows them. Topics of one request with the same overrides share the
    list: most requests have one set of overrides, and a list has a row for every setting.
    """

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._shown: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    def of(self, topic: CreatableTopic) -> list[CreatableTopicConfigs]:
        values = {config.name: config.value for config in topic.configs if config.value is not None}
        key = frozenset(values.items())
        if key not in self._shown:
            self._shown[key] = self._rows(values)
        return self._shown[key]

    def _rows(self, values: dict[str, str]) -> list[CreatableTopicConfigs]:
        state = self._state
        rows = state.rules.topic_rows(values, cluster=state.cluster_config(), node=state.node_config())
        return [
            CreatableTopicConfigs(
                row.name,
                None if row.sensitive else values.get(row.name, row.value),  # as it was given, not as it is read
                row.read_only,
                row.source,
                row.sensitive,
            )
            for row in rows
        ]


def _succeeded(
    topic: CreatableTopic,
    topic_id: Uuid,
    partitions: list[PartitionRegistration],
    context: ControllerRequestContext,
    shown: ShownConfigs,
) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
    if not context.may_describe_configs(topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.configs = shown.of(topic)
    result.num_partitions = len(partitions)
    result.replication_factor = len(partitions[0].replicas)
    return result


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    outcome = refused(error)
    return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
