"""Sends a node's finished spans to an OpenTelemetry collector: OTLP over HTTP as JSON, once a second, from a thread.

If the collector does not answer, its spans are dropped and one line is logged until it answers again. Requests are
never delayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.env.url_logins import without_login
from ottla.protocol.generated.index import APIS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.tracing import RequestSpan, TracingMetrics
    from ottla.env.seams import RandomSource

log = get_logger(__name__)

_EVERY_S = 1.0
_BATCH = 512
_TIMEOUT_S = 5.0
_SERVER = 2
"""SPAN_KIND_SERVER"""


class TraceSender:
    def __init__(
        self, endpoint: str, metrics: TracingMetrics, random: RandomSource, node_id: int, cluster_id: str
    ) -> None:
        self._endpoint = endpoint
        self._metrics = metrics
        self._random = random
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send the remaining spans once."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._send()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._send()

    async def _send(self) -> None:
        while spans := self._metrics.take(_BATCH):
            body = json.dumps(self._request(spans), separators=(",", ":")).encode()
            try:
                await asyncio.to_thread(self._post, body)
            except (OSError, urllib.error.URLError, HTTPException, ValueError) as error:
                self._metrics.spans_dropped += len(spans)
                if not self._failing:
                    log.warning(
                        "traces.refused",
                        endpoint=without_login(self._endpoint),
                        reason=str(error),
                        spans_dropped=self._metrics.spans_dropped,
                    )
                self._failing = True
                return
            self._failing = False

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked with the setting
            self._endpoint, body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
            answer.read(4096)

    def _request(self, spans: Iterable[RequestSpan]) -> dict[str, Any]:
        from ottla import __version__

        resource = {
            "service.name": "ottla", "service.version": __version__, "service.instance.id": str(self._node_id),
            "messaging.kafka.cluster.id": self._cluster_id,
        }  # fmt: skip
        scope = {"scope": {"name": "ottla.broker"}, "spans": [self._span(span) for span in spans]}
        return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}

    def _span(self, span: RequestSpan) -> dict[str, Any]:
        facts: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.client.id": span.client_id,
            "messaging.kafka.api.key": span.api_key,
            "messaging.kafka.api.version": span.version,
            "network.peer.address": span.peer,
            "enduser.id": span.principal,
        }
        if span.topics:
            facts["messaging.destination.name"] = ",".join(span.topics)
            facts["messaging.message.body.size"] = span.size
        if span.records:
            facts["messaging.batch.message_count"] = span.records
        begin = int(span.begin_ms * 1_000_000)
        return {
            "traceId": self._random.token_bytes(16).hex(),
            "spanId": self._random.token_bytes(8).hex(),
            "name": APIS[span.api_key].name if span.api_key in APIS else f"api {span.api_key}",
            "kind": _SERVER,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + int(span.taken_ms * 1_000_000)),
            "attributes": _attributes(facts),
            "status": {},
        }


def _attributes(facts: dict[str, str] | dict[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in facts.items()
    ]
