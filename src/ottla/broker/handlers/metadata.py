"""Metadata: brokers, topics, leaders. Starts the creation of a missing topic where that is allowed, and does not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.pace import paced
from ottla.model.topic_names import INTERNAL_TOPICS, is_topic_name
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane, MetadataPlane

TOPIC_OPERATIONS = 3576
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all, where there are no ACLs."""
CLUSTER_OPERATIONS = 8096
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
NOT_ASKED = -2147483648
FIRST_TOPIC_ID_VERSION = 12


def handle(context: RequestContext[MetadataPlane], request: MetadataRequest) -> MetadataResponse:
    if context.version < FIRST_TOPIC_ID_VERSION and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in paced(request.topics or ())
    ):
        return _topic_ids_refused(request)
    if request.topics is not None and context.broker.config.auto_create_topics_enable:
        missing = _missing(context.broker.image, request)
        if missing and (request.allow_auto_topic_creation or context.version < 4):
            context.broker.auto_creation.create(context, missing)
    return _answer(context, request)


def _topic_ids_refused(request: MetadataRequest) -> MetadataResponse:
    """Versions 10 and 11 have the field and do not allow its use."""
    code = int(ErrorCode.INVALID_REQUEST)
    return MetadataResponse(
        topics=[MetadataResponseTopic(code, topic.name or "", topic.topic_id) for topic in paced(request.topics or ())]
    )


def _missing(image: MetadataImage, request: MetadataRequest) -> list[str]:
    return [
        topic.name
        for topic in paced(request.topics or ())
        if topic.name is not None
        and topic.topic_id == ZERO_UUID
        and topic.name not in image.topics_by_name
        and is_topic_name(topic.name)
    ]


def _answer(context: RequestContext[MetadataPlane], request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    image = broker.image
    everything = request.topics is None or (context.version == 0 and not request.topics)
    if everything:
        topics = [_topic(image, topic, request) for topic in paced(list(image.topics_by_name.values()), 3)]
    else:
        # Each topic once, as in Kafka: a name that comes a million times is one question.
        once = {(topic.name, topic.topic_id): topic for topic in paced(request.topics or ())}
        answers = [_requested(image, topic, request) for topic in paced(list(once.values()), 3)]
        topics = list({answer.name or answer.topic_id: answer for answer in paced(answers)}.values())
    recently_fenced, now_ms = broker.recently_fenced, broker.clock.monotonic_ms()
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node.id, node.listeners[context.listener].host, node.listeners[context.listener].port, node.rack
            )
            for node in image.brokers.values()
            if context.listener in node.listeners and recently_fenced.listed(node, now_ms)
        ],
        cluster_id=broker.cluster_id,
        controller_id=named_controller(context),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def named_controller(context: RequestContext[ControlPlane]) -> int:
    """The broker to send admin calls to. Every broker forwards them, so the answer names this broker, unless the answer
    does not list it yet. A client that gets a controller without an address waits for the next metadata, for minutes.
    """
    own = context.broker.node_id
    alive = [n.id for n in context.broker.image.brokers.values() if not n.fenced and context.listener in n.listeners]
    return own if own in alive else min(alive, default=-1)


def _requested(
    image: MetadataImage, requested: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    if requested.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(requested.topic_id)
        if topic is None:
            return MetadataResponseTopic(int(ErrorCode.UNKNOWN_TOPIC_ID), None, requested.topic_id)
        return _topic(image, topic, request)
    name = requested.name or ""
    topic = image.topics_by_name.get(name)
    if topic is not None:
        return _topic(image, topic, request)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(int(code), name, is_internal=name in INTERNAL_TOPICS)


def _topic(image: MetadataImage, topic: TopicImage, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.id,
        topic.name in INTERNAL_TOPICS,
        [_partition(image, index, registration) for index, registration in paced(list(topic.partitions.items()), 3)],
        TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED,
    )


def _partition(image: MetadataImage, index: int, registration: PartitionRegistration) -> MetadataResponsePartition:
    brokers = image.brokers
    leader = brokers.get(registration.leader)
    code = 0 if leader is not None else int(ErrorCode.LEADER_NOT_AVAILABLE)
    return MetadataResponsePartition(
        code,
        index,
        registration.leader,
        registration.leader_epoch,
        list(registration.replicas),
        list(registration.isr),
        [node for node in registration.replicas if node not in brokers or brokers[node].fenced],
    )
