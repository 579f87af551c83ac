"""DescribeConfigs: effective settings of topics, brokers, groups and client-metrics subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.env.config.describe import (
    ConfigRow,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.model.topic_names import check_topic_name
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(context: RequestContext[NodePlane], request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_resource(context, request, resource) for resource in paced(request.resources, 100)]
    )


def _resource(
    context: RequestContext[NodePlane], request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        rows = _rows(context, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        # The answer for an unknown topic has an error code and no message.
        message = "" if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.message
        return DescribeConfigsResult(int(error.code), message, resource.resource_type, resource.resource_name)
    keys = set(paced(resource.configuration_keys or ()))
    configs = [_row(row, request) for row in paced(rows, 2) if not keys or row.name in keys]
    return DescribeConfigsResult(0, "", resource.resource_type, resource.resource_name, configs)


def _rows(context: RequestContext[NodePlane], resource_type: int, name: str) -> list[ConfigRow]:
    broker = context.broker
    overrides = broker.image.configs.get((resource_type, name), {})
    if resource_type == RESOURCE_TOPIC:
        check_topic_name(name)
        if name not in broker.image.topics_by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(overrides, broker.config)
    if resource_type == RESOURCE_BROKER:
        return describe_cluster_default(broker.config) if not name else _broker(context, name)
    if resource_type == RESOURCE_GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(overrides, broker.config)
    if resource_type == RESOURCE_CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(overrides)
    if resource_type == RESOURCE_BROKER_LOGGER:
        return _loggers(context, name)
    raise KafkaError(ErrorCode.INVALID_REQUEST)


def _loggers(context: RequestContext[NodePlane], name: str) -> list[ConfigRow]:
    """None: there are no loggers with levels of their own here."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(context.broker.node_id):
        expected = f"Unexpected broker id, expected {context.broker.node_id} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, expected)
    return []


def _broker(context: RequestContext[NodePlane], name: str) -> list[ConfigRow]:
    try:
        node_id = int(name)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from error
    if node_id != context.broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.broker.node_id} or empty string, but received {name}",
        )
    return describe_broker(context.broker.config)


def _row(row: ConfigRow, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = row.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        row.name,
        row.value,
        row.read_only,
        int(row.source),
        row.sensitive,
        [DescribeConfigsSynonym(synonym.name, synonym.value, int(synonym.source)) for synonym in synonyms],
        int(row.kind),
        row.documentation if request.include_documentation else None,
    )
