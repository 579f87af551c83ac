"""Internal topics of Kafka Streams applications: created by the broker when a group's topology lacks them.

The heartbeat that finds topics missing does not wait for their creation; a later heartbeat finds the topics. A topic
that could not be created is not retried for a while. Meanwhile the members' heartbeats return the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.planes import GroupPlane
    from ottla.env.seams import Clock

log = get_logger(__name__)

TIMEOUT_MS = 30_000
MAX_ERRORS = 1_000
"""Topics whose failure is remembered; the oldest go first."""


class StreamsTopics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight: set[str] = set()
        self._errors: dict[str, tuple[float, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, context: RequestContext[GroupPlane], topics: Iterable[CreatableTopic], remember_ms: int) -> None:
        """Create the topics that are not being created and did not just fail. The request runs as the client, whose
        right was checked.
        """
        failed = self.errors([topic.name for topic in topics])
        missing = [topic for topic in topics if topic.name not in failed and topic.name not in self._in_flight]
        if missing:
            self._in_flight |= {topic.name for topic in missing}
            task = asyncio.ensure_future(self._create(context, missing, remember_ms))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Why topics could not be created a moment ago."""
        now_ms = self._clock.monotonic_ms()
        return {
            name: self._errors[name][1] for name in names if name in self._errors and self._errors[name][0] > now_ms
        }

    async def _create(
        self, context: RequestContext[GroupPlane], topics: list[CreatableTopic], remember_ms: int
    ) -> None:
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        try:
            response = await context.broker.controller.submit(request, context)
        finally:
            self._in_flight -= {topic.name for topic in topics}
        for topic in response.topics:
            if topic.error_code:
                self._remember(topic.name, topic.error_message or ErrorCode(topic.error_code).message, remember_ms)

    def _remember(self, name: str, reason: str, remember_ms: int) -> None:
        log.warning("topic.not_created", topic=name, reason=reason)
        self._errors.pop(name, None)
        self._errors[name] = self._clock.monotonic_ms() + remember_ms, reason
        while len(self._errors) > MAX_ERRORS:
            del self._errors[next(iter(self._errors))]
