"""The topics that coordinators keep their state in: made when somebody first needs them, with Kafka's settings."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.coordinator.settings import GroupSettings
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

log = get_logger(__name__)

TIMEOUT_MS = 30_000


async def create_offsets_topic(context: RequestContext) -> None:
    """Create `__consumer_offsets` unless somebody is at it; what goes wrong is logged and tried again next time."""
    groups = context.broker.groups
    if groups.shards.creating_topic:
        return
    groups.shards.creating_topic = True
    try:
        request = CreateTopicsRequest(topics=[offsets_topic(groups.settings)], timeout_ms=TIMEOUT_MS)
        # As the broker itself, not for the client: it needs no right to create topics.
        response = await context.broker.controller.submit(request, None)
    finally:
        groups.shards.creating_topic = False
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("topic.not_created", topic=topic.name, reason=topic.error_message)


def offsets_topic(settings: GroupSettings) -> CreatableTopic:
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    return CreatableTopic(
        OFFSETS_TOPIC,
        settings.offsets_topic_num_partitions,
        settings.offsets_topic_replication_factor,
        configs=[CreatableTopicConfig(name, value) for name, value in configs.items()],
    )
