"""What the broker counts: records and bytes by topic, requests by API, and who writes and reads what.

Counting is a few additions on the loop and nothing else; the text is made when the metrics are requested. A node
without `ottla.http.listener` has no such object and counts nothing.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.model.peer_text import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import RequestContext
    from ottla.broker.planes import NodePlane
    from ottla.env.seams import Clock

_WINDOW = 1024
"""Durations of each API that the quantiles are of: its latest."""
MAX_FLOWS = 10_000
"""Client, topic and direction; more are not remembered, and counted as forgotten."""


@dataclass(slots=True)
class TopicCounts:
    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    share_acknowledgement_requests: int = 0
    failed_share_acknowledgement_requests: int = 0


@dataclass(slots=True)
class Flow:
    requests: int = 0
    size: int = 0
    last_ms: int = 0


class RequestTimes:
    """How often an API was called, by version, and how long its latest answers took."""

    __slots__ = ("_latest", "by_version", "count")

    def __init__(self) -> None:
        self.by_version: dict[int, int] = {}
        self.count = 0
        self._latest = array("d")

    def add(self, version: int, taken_ms: float) -> None:
        self.by_version[version] = self.by_version.get(version, 0) + 1
        if len(self._latest) < _WINDOW:
            self._latest.append(taken_ms)
        else:
            self._latest[self.count % _WINDOW] = taken_ms
        self.count += 1

    def quantiles(self, parts: Sequence[float]) -> list[float]:
        ordered = sorted(self._latest)
        return [ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0 for part in parts]


FlowKey = tuple[str, str, str, str, str]
"""Direction (produce, fetch), topic, client id, principal, host."""


class BrokerMetrics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.all_topics = TopicCounts()
        self.topics: dict[str, TopicCounts] = {}
        self.requests: dict[int, RequestTimes] = {}
        self.flows: dict[FlowKey, Flow] = {}
        self.acknowledgements: dict[int, int] = {}
        """Records that members of share groups have acknowledged, by acknowledgement type."""

    def started(self, context: RequestContext[NodePlane]) -> None:
        context.started_ms = self._clock.monotonic_ms()

    def answered(self, context: RequestContext[NodePlane]) -> None:
        times = self.requests.get(context.api_key)
        if times is None:
            times = self.requests[context.api_key] = RequestTimes()
        times.add(context.version, self._clock.monotonic_ms() - context.started_ms)

    def produced(self, context: RequestContext[NodePlane], topic: str, records: int, size: int) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.produce_requests += 1
            counts.messages_in += records
            counts.bytes_in += size
        self._flow("produce", context, topic, size)

    def produce_failed(self, topic: str) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.produce_requests += 1
            counts.failed_produce_requests += 1

    def fetched(self, context: RequestContext[NodePlane], topic: str, size: int) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.fetch_requests += 1
            counts.bytes_out += size
        if size:
            self._flow("fetch", context, topic, size)

    def fetch_failed(self, topic: str) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.fetch_requests += 1
            counts.failed_fetch_requests += 1

    def share_fetched(self, context: RequestContext[NodePlane], topic: str, size: int, *, failed: bool) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.share_fetch_requests += 1
            counts.failed_share_fetch_requests += failed
            counts.bytes_out += size
        if size:
            self._flow("fetch", context, topic, size)

    def share_acknowledged(self, topic: str, *, failed: bool) -> None:
        for counts in (self.all_topics, self._topic(topic)):
            counts.share_acknowledgement_requests += 1
            counts.failed_share_acknowledgement_requests += failed

    def words_of(self, kinds: Sequence[int], records: int) -> None:
        """One kind for each record, or one for all of them."""
        for kind in kinds:
            self.acknowledgements[kind] = self.acknowledgements.get(kind, 0) + (records if len(kinds) == 1 else 1)

    def forget_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        for key in [key for key in self.flows if key[1] == topic]:
            del self.flows[key]

    def _topic(self, topic: str) -> TopicCounts:
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        return counts

    def _flow(self, direction: str, context: RequestContext[NodePlane], topic: str, size: int) -> None:
        key = (direction, topic, cut(context.client_id or ""), cut(context.principal), context.client_host)
        flow = self.flows.get(key)
        if flow is None:
            if len(self.flows) >= MAX_FLOWS:
                return
            flow = self.flows[key] = Flow()
        flow.requests += 1
        flow.size += size
        flow.last_ms = self._clock.time_ms()

    def lineage(self) -> dict[str, list[dict[str, object]]]:
        """Who writes to and reads from each topic, since the node started."""
        flows: dict[str, list[dict[str, object]]] = {"produce": [], "fetch": []}
        for (direction, topic, client_id, principal, host), flow in sorted(self.flows.items()):
            flows[direction].append(
                {
                    "topic": topic,
                    "client_id": client_id,
                    "principal": principal,
                    "host": host,
                    "requests": flow.requests,
                    "bytes": flow.size,
                    "last_ms": flow.last_ms,
                }
            )
        return flows
