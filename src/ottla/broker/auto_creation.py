"""Topics that come into being because somebody asked for them (auto.create.topics.enable), and internal ones."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.internal_topics import offsets_topic, transaction_state_topic
from ottla.env.logging import get_logger
from ottla.model.topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest

log = get_logger(__name__)

USE_DEFAULT = -1
TIMEOUT_MS = 30_000
MAX_AT_ONCE = 1000


async def create_missing(context: RequestContext, names: list[str]) -> None:
    """Create topics with the broker's defaults. What cannot be created stays unknown to the caller's answer."""
    topics = [_topic(context, name) for name in names[:MAX_AT_ONCE]]
    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    response = await context.broker.controller.submit(request, context)
    for topic in response.topics:
        if topic.error_code:
            log.warning("topic.not_created", topic=topic.name, reason=topic.error_message)


def _topic(context: RequestContext, name: str) -> CreatableTopic:
    if name == OFFSETS_TOPIC:
        return offsets_topic(context.broker.groups.settings)
    if name == TRANSACTION_STATE_TOPIC:
        return transaction_state_topic(context.broker.transactions.settings)
    return CreatableTopic(name, USE_DEFAULT, USE_DEFAULT)
