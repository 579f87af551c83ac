"""Brokers that were fenced a moment ago: Metadata still lists them for some seconds (`LISTED_MS`).

Our controller fences a broker as soon as its process has died, where Kafka's waits for the end of its session. A client
could then learn in one answer that a partition has a new leader and that the old leader has left the cluster. In that
case librdkafka drops the old broker with the partition still on it, and looks again a second later. While Metadata
still lists the old broker, as with Kafka, librdkafka moves the partition at once.
"""

from __future__ import annotations

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.ids import NodeId

LISTED_MS = 5_000.0
_LONG_AGO = float("-inf")


class RecentlyFenced:
    __slots__ = ("_alive", "_fenced_ms")

    def __init__(self) -> None:
        self._alive: set[NodeId] = set()
        self._fenced_ms: dict[NodeId, float] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage, now_ms: float) -> None:
        for broker_id in image.brokers if delta.reloaded else delta.brokers:
            broker = image.brokers.get(broker_id)
            if broker is None:
                self._alive.discard(broker_id)
                self._fenced_ms.pop(broker_id, None)
            elif not broker.fenced:
                self._alive.add(broker_id)
                self._fenced_ms.pop(broker_id, None)
            elif broker_id in self._alive:
                self._alive.discard(broker_id)
                self._fenced_ms[broker_id] = now_ms

    def listed(self, broker: BrokerRegistration, now_ms: float) -> bool:
        return not broker.fenced or now_ms - self._fenced_ms.get(broker.id, _LONG_AGO) < LISTED_MS
