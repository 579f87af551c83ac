"""StreamsGroupHeartbeat: a thread of a Kafka Streams application joins, stays, follows its tasks or leaves (KIP-1071)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.streams.heartbeat import StreamsAnswer
from ottla.coordinator.groups.streams.statuses import StatusCode
from ottla.coordinator.groups.streams.timings import streams_timings
from ottla.metadata.features import STREAMS_VERSION
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS, is_topic_name
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest, Topology
from ottla.protocol.generated.streams_group_heartbeat_response import Status, StreamsGroupHeartbeatResponse
from ottla.security.acls import CLUSTER_NAME

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_SHOWN_ERRORS = 3


def handle(
    context: RequestContext[GroupPlane], request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | Deferred[StreamsGroupHeartbeatResponse]:
    if not serves_streams_protocol(context):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal = None if request.topology is None else _refuse_topics(context, request.topology)
    if refusal is not None:
        return refusal
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.version)
    return ask(
        partial(context.broker.groups.streams_heartbeat, caller, request),
        partial(_answer, context, request.group_id),
        _failed,
    )


def serves_streams_protocol(context: RequestContext[GroupPlane]) -> bool:
    """Whether the cluster has finalized streams.version, and group.coordinator.rebalance.protocols has `streams`."""
    protocols = context.broker.config.group_coordinator_rebalance_protocols
    return context.broker.image.features.get(STREAMS_VERSION, 0) >= 1 and "streams" in protocols


def _refuse_topics(context: RequestContext[GroupPlane], topology: Topology) -> StreamsGroupHeartbeatResponse | None:
    required = topics_of(topology)
    prohibited = [name for name in paced(required) if name in INTERNAL_TOPICS]
    if prohibited:
        return StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY,
            error_message=f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in paced(required, 2) if not is_topic_name(name)]
    if invalid:
        return StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY,
            error_message=f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    if not all(context.allowed(Operation.DESCRIBE, Resource.TOPIC, name) for name in paced(required, 3)):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def topics_of(topology: Topology) -> list[str]:
    """Every topic that the topology names, once."""
    names: dict[str, None] = {}
    for subtopology in paced(topology.subtopologies, 3):
        names |= dict.fromkeys((*subtopology.source_topics, *subtopology.repartition_sink_topics))
        names |= {
            topic.name: None for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
        }
    return list(names)


def _answer(context: RequestContext[GroupPlane], group_id: str, answer: StreamsAnswer) -> StreamsGroupHeartbeatResponse:
    """Create missing internal topics if the client may create them; the response's status lists denied and failed
    topics.
    """
    if not answer.missing_topics:
        return answer.response
    names = [topic.name for topic in answer.missing_topics]
    denied = (
        []
        if context.allowed(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        else [name for name in names if not context.allowed(Operation.CREATE, Resource.TOPIC, name)]
    )
    if denied:
        _add_detail(answer.response, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
        return answer.response
    broker = context.broker
    timings = streams_timings(group_id, broker.image, broker.groups.settings)
    topics = [topic.creatable() for topic in answer.missing_topics]
    broker.streams_topics.create(context, topics, timings.heartbeat_interval_ms * 2)
    errors = [f"{name} ({reason})" for name, reason in broker.streams_topics.errors(names).items()]
    if errors:
        more = f" and {len(errors) - _SHOWN_ERRORS} more" if len(errors) > _SHOWN_ERRORS else ""
        _add_detail(answer.response, f"; Creation failed: {', '.join(errors[:_SHOWN_ERRORS])}{more}.")
    return answer.response


def _add_detail(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    response.status = [
        Status(status.status_code, status.status_detail + text)
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
        else status
        for status in response.status or ()
    ]


def _failed(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    message = None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=message)
