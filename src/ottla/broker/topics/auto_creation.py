"""Topics that are created because a client requested their metadata (auto.create.topics.enable), and internal topics.

As in Kafka, the Metadata request does not wait for the creation: it is answered UNKNOWN_TOPIC_OR_PARTITION, and the
client retries. A topic that is being created is not requested twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.topics.internal_topics import offsets_topic, transaction_state_topic
from ottla.env.logging import get_logger
from ottla.model.errors import KafkaError
from ottla.model.topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.planes import MetadataPlane

log = get_logger(__name__)

USE_DEFAULT = -1
TIMEOUT_MS = 30_000
MAX_AT_ONCE = 1000
"""Topics that are being created at one time; clients retry for other topics."""


class AutoCreation:
    def __init__(self) -> None:
        self._in_flight: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, context: RequestContext[MetadataPlane], names: list[str]) -> None:
        """Begins to create those that are not being created already, with the broker's defaults."""
        missing = [name for name in dict.fromkeys(names) if name not in self._in_flight]
        missing = missing[: max(0, MAX_AT_ONCE - len(self._in_flight))]
        if missing:
            self._in_flight.update(missing)
            task = asyncio.ensure_future(self._create(context, missing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _create(self, context: RequestContext[MetadataPlane], names: list[str]) -> None:
        request = CreateTopicsRequest(topics=[_topic(context, name) for name in names], timeout_ms=TIMEOUT_MS)
        try:
            response = await context.broker.controller.submit(request, context)
        except KafkaError as reason:
            log.warning("topics.not_created", topics=len(names), reason=reason.message)
            return
        finally:
            self._in_flight.difference_update(names)
        for topic in response.topics:
            if topic.error_code:
                log.warning("topic.not_created", topic=topic.name, reason=topic.error_message)


def _topic(context: RequestContext[MetadataPlane], name: str) -> CreatableTopic:
    if name == OFFSETS_TOPIC:
        return offsets_topic(context.broker.groups.settings)
    if name == TRANSACTION_STATE_TOPIC:
        return transaction_state_topic(context.broker.transactions.settings)
    return CreatableTopic(name, USE_DEFAULT, USE_DEFAULT)
