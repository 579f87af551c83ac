"""IncrementalAlterConfigs and AlterConfigs: topic, broker, group and client-metrics settings as Config records.

A resource's changes are checked against the values that it would have afterwards, all or nothing. Broker settings make
a record even when the value stays, so that the broker reloads what the value points at (KAFKA-14136).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ottla.controller.elr import MIN_ISR
from ottla.controller.outcome import OK, ApiError, refused
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
)
from ottla.metadata.records import ClearElrRecord, ConfigRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.model.pace import paced
from ottla.model.quarantine import MODE_SETTING, QUARANTINE, TOPIC_SETTING, quarantine_topic, target_problem
from ottla.model.topic_names import check_topic_name
from ottla.protocol.generated.alter_configs_request import AlterConfigsRequest
from ottla.protocol.generated.alter_configs_response import AlterConfigsResourceResponse as LegacyResponse
from ottla.protocol.generated.alter_configs_response import AlterConfigsResponse
from ottla.protocol.generated.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.protocol.generated.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.primitives import Message

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
_OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

MAX_VALUE_BYTES = 32767

_KNOWN_TYPES = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_CLIENT_METRICS)

Operations = Mapping[str, tuple[int, str | None]]


def incremental_alter_configs(
    state: ControllerState, request: IncrementalAlterConfigsRequest, context: ControllerRequestContext
) -> Decision[Message, IncrementalAlterConfigsResponse]:
    records: list[Message] = []
    outcomes = _alter_each(state, request.resources, records, context, incremental=True)
    response = IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error.code, error.message, resource.resource_type, resource.resource_name)
            for resource, error in outcomes
        ]
    )
    return Decision(response, [] if request.validate_only else records)


def alter_configs(
    state: ControllerState, request: AlterConfigsRequest, context: ControllerRequestContext
) -> Decision[Message, AlterConfigsResponse]:
    """The legacy call: settings that are not named go back to their defaults."""
    records: list[Message] = []
    outcomes = _alter_each(state, request.resources, records, context, incremental=False)
    response = AlterConfigsResponse(
        responses=[
            LegacyResponse(error.code, error.message, resource.resource_type, resource.resource_name)
            for resource, error in outcomes
        ]
    )
    return Decision(response, [] if request.validate_only else records)


def _alter_each(
    state: ControllerState,
    resources: list[Any],
    records: list[Message],
    context: ControllerRequestContext,
    *,
    incremental: bool,
) -> list[tuple[Any, ApiError]]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes = []
    for resource in paced(resources, 40):
        key = (resource.resource_type, resource.resource_name)
        try:
            if counts[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_entries(resource, incremental=incremental)
            configs = {config.name: config for config in resource.configs}
            operations = {  # in Kafka's order: Kafka names the first wrong setting
                name: (configs[name].config_operation if incremental else SET, configs[name].value)
                for name in strings_in_java_order(configs)
            }
            records += config_changes(state, key, operations, context, replace_all=not incremental)
            outcomes.append((resource, OK))
        except KafkaError as error:
            outcomes.append((resource, refused(error)))
    return outcomes


def _check_entries(resource: Any, *, incremental: bool) -> None:
    """Refuses entries that Kafka's broker refuses before the controller sees them."""
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        config.name
        for config in resource.configs
        if config.value is None and not (incremental and config.config_operation == DELETE)
    ]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    allowed = (*_KNOWN_TYPES, RESOURCE_BROKER_LOGGER) if incremental else _KNOWN_TYPES
    if resource.resource_type not in allowed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def config_changes(
    state: ControllerState,
    resource: ConfigResource,
    operations: Operations,
    context: ControllerRequestContext,
    *,
    newly_created: bool = False,
    replace_all: bool = False,
) -> list[Message]:
    """The Config records of one resource. Raises KafkaError if the resulting values are not valid."""
    current = state.image.configs.get(resource, {})
    records: list[ConfigRecord] = []
    for name, (operation, operand) in operations.items():
        old = current.get(name)
        new = _applied(state, resource, name, old, operation, operand)
        if new is not None and len(new.encode()) > MAX_VALUE_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_VALUE_BYTES} bytes.",
            )
        if new != old or resource[0] == RESOURCE_BROKER:
            records.append(ConfigRecord(resource[0], resource[1], name, new))
    if replace_all:
        records += [ConfigRecord(resource[0], resource[1], name, None) for name in current if name not in operations]
    _check_values(state, resource, records, current)
    _check_quarantine(resource, records, current, context)
    _check_min_isr(state, records)
    if not newly_created:
        _check_exists(state, resource)
    return [*records, *_clear_elr(state, resource, records)]


def _applied(
    state: ControllerState, resource: ConfigResource, name: str, old: str | None, operation: int, operand: str | None
) -> str | None:
    if operation == SET:
        return operand
    if operation == DELETE:
        return None
    if operation not in (APPEND, SUBTRACT):
        # Kafka's broker reports this error; Kafka's controller fails with a different code. Clients see either code.
        if resource[0] == RESOURCE_BROKER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if not state.rules.is_list(resource[0], name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATION_NAMES[operation]} to key {name} because its type is not LIST.",
        )
    base = old if old is not None else state.rules.default_value(resource[0], name)
    values = [part for part in (base or "").split(",") if part]
    for part in _java_split(operand or ""):
        if operation == SUBTRACT:
            if part in values:
                values.remove(part)
        elif part not in values:
            values.append(part)
    return ",".join(values)


def _java_split(text: str) -> list[str]:
    """Java's String.split(","): empty parts at the end are dropped, unless the whole text is empty."""
    parts = text.split(",")
    while text and parts and not parts[-1]:
        parts.pop()
    return parts


def _check_values(
    state: ControllerState, resource: ConfigResource, records: list[ConfigRecord], current: Mapping[str, str]
) -> None:
    values = dict(current)
    for record in records:
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
    kind, name = resource
    cluster, node = state.cluster_config(), state.node_config()
    if kind == RESOURCE_TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        state.rules.check_topic(values, current, cluster=cluster, node=node)
    elif kind == RESOURCE_BROKER:
        _check_broker_name(state, name)
        state.rules.check_broker(values, per_broker=bool(name), cluster=cluster, node=node)
    elif kind == RESOURCE_GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        state.rules.check_group(values, cluster=cluster, node=node)
    elif kind == RESOURCE_CLIENT_METRICS:
        state.rules.check_client_metrics(name, values)
    elif kind == RESOURCE_BROKER_LOGGER and records:
        # Ottla has no loggers with their own levels, so no logger with such a name exists.
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {records[0].name} does not exist!")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _check_quarantine(
    resource: ConfigResource, records: list[ConfigRecord], current: Mapping[str, str], context: ControllerRequestContext
) -> None:
    """Brokers write quarantined records for the producers: to choose the topic needs the right to write to the topic."""
    changes = {record.name: record.value for record in records if record.name in (MODE_SETTING, TOPIC_SETTING)}
    if resource[0] != RESOURCE_TOPIC or not changes:
        return
    values = {name: (value or "").strip() for name, value in {**current, **changes}.items()}
    named = values.get(TOPIC_SETTING, "")
    if values.get(MODE_SETTING) != QUARANTINE and not (named and TOPIC_SETTING in changes):
        return
    target = quarantine_topic(resource[1], named)
    problem = target_problem(resource[1], target)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    if not context.may_write(target):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{TOPIC_SETTING}: {context.principal} needs WRITE on the quarantine topic {target}",
        )


def _check_broker_name(state: ControllerState, name: str) -> None:
    if not name:
        return
    if not name.lstrip("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) not in state.image.brokers and int(name) != state.settings.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {state.settings.node_id}, but received {name}"
        )


def _check_exists(state: ControllerState, resource: ConfigResource) -> None:
    if resource[0] == RESOURCE_TOPIC and resource[1] not in state.image.topics_by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource[1]}' does not exist.")


def _check_min_isr(state: ControllerState, records: list[ConfigRecord]) -> None:
    """With ELR on, min.insync.replicas is one value for the cluster: every broker must have the same eligible
    replicas.
    """
    if not state.image.elr_enabled:
        return
    for record in records:
        if record.name != MIN_ISR or record.resource_type != RESOURCE_BROKER:
            continue
        if not record.resource_name and record.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )
        if record.resource_name and record.value is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            )


def _clear_elr(state: ControllerState, resource: ConfigResource, records: list[ConfigRecord]) -> list[Message]:
    """A changed min.insync.replicas makes the previous eligible replicas meaningless."""
    if not state.image.elr_enabled or not any(record.name == MIN_ISR for record in records):
        return []
    if resource[0] == RESOURCE_TOPIC and resource[1] in state.image.topics_by_name:
        return [ClearElrRecord(resource[1])]
    return [ClearElrRecord("")] if resource == (RESOURCE_BROKER, "") else []
