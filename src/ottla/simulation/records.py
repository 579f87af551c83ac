"""Producers and consumers of a simulated cluster. Acknowledgements to producers are kept, and must stay true.

They speak the wire (`ottla.simulation.clients`). They choose the broker by the newest image, or a wrong broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch, parse_header
from ottla.protocol.records_header import iterate_batches
from ottla.replication.fetch_session import Key
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.clients import Clients
    from ottla.simulation.ledger import Ledger

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 4_000
WRONG_BROKER = 0.1
PLAIN = "tr"
"""The first letters of topics for plain records: ordinary topics, and topics with a retention of few bytes."""


class Promise(NamedTuple):
    """An answer to acks=all: this batch is committed at that offset."""

    key: Key
    offset: int
    crc: int


class Read(NamedTuple):
    """A batch that a consumer got from a broker."""

    broker: NodeId
    key: Key
    offset: int
    crc: int


def produce_request(key: Key, batch: bytes, acks: int) -> ProduceRequest:
    data = TopicProduceData(topic_id=key[0], partition_data=[PartitionProduceData(key[1], batch)])
    return ProduceRequest(acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])


class Records:
    def __init__(self, clients: Clients, ledger: Ledger, committed_end: Callable[[Key], int]) -> None:
        """`committed_end`: the offset after the last record that any leader has reported as committed."""
        self._clients = clients
        self._ledger = ledger
        self.committed_end = committed_end
        self._world = clients.world
        self._number = 0
        self._positions: dict[tuple[NodeId, Key], int] = {}
        self.sent = 0
        self.acked: list[Promise] = []
        self.on_acked: Callable[[Promise], None] = lambda _promise: None
        self.on_read: Callable[[Read], None] = lambda _read: None

    def start(self) -> None:
        dice = self._world.random
        self._pause_ms = dice.choice([40.0, 80.0, 160.0])
        self._world.call_later(1_000, self._produce)
        self._world.call_later(1_500, self._consume)

    def _keys(self) -> list[Key]:
        image = self._clients.image
        topics = image.topics_by_id.values() if image is not None else ()
        return [(topic.id, index) for topic in topics if topic.name[0] in PLAIN for index in topic.partitions]

    def leader(self, key: Key) -> NodeId | None:
        image = self._clients.image
        topic = image.topics_by_id.get(key[0]) if image is not None else None
        registration = topic.partitions.get(key[1]) if topic is not None else None
        leader = registration.leader if registration is not None else -1
        return leader if leader >= 0 else None

    # ------------------------------------------------------------------------------------------------------- producing

    def _produce(self) -> None:
        dice = self._world.random
        keys = self._keys()
        if keys:
            key = dice.choice(keys)
            leader = self.leader(key)
            if leader is None or dice.random() < WRONG_BROKER:
                leader = dice.choice(self._clients.brokers())
            self.send(leader, key, acks=1 if dice.random() < 0.1 else ACKS_ALL)
        self._world.call_later(dice.expovariate(1 / self._pause_ms), self._produce)

    def send(self, broker: NodeId, key: Key, acks: int = ACKS_ALL) -> None:
        """Send one batch of one to three records."""
        self._number += 1
        self.sent += 1
        dice = self._world.random
        values = [b"%d/%d" % (self._number, index) + bytes(dice.choice([0, 10, 200])) for index in range(1, 4)]
        now_ms = EPOCH_MS + int(self._world.now_ms)
        batch = build_batch([SimpleRecord(now_ms, None, v) for v in values[: dice.choice([1, 1, 3])]])
        self._clients.spawn(self._send(broker, key, acks, bytes(batch)))

    async def deliver(self, key: Key, batch: bytes) -> None:
        """To the leader, once."""
        leader = self.leader(key)
        if leader is not None:
            await self._send(leader, key, ACKS_ALL, batch)

    async def _send(self, broker: NodeId, key: Key, acks: int, batch: bytes) -> None:
        crc = parse_header(batch, 0).crc
        self._ledger.sent[crc] = key
        with contextlib.suppress(NodeUnavailable):
            response = await self._clients.ask(broker, produce_request(key, batch, acks))
            result = response.responses[0].partition_responses[0]
            if acks == ACKS_ALL and not result.error_code:
                self.acknowledged(Promise(key, result.base_offset, crc))

    def acknowledged(self, promise: Promise) -> None:
        self.acked.append(promise)
        self.on_acked(promise)

    # ------------------------------------------------------------------------------------------------------- consuming

    def _consume(self) -> None:
        dice = self._world.random
        keys = self._keys()
        if keys:
            self._clients.spawn(self._fetch(dice.choice(self._clients.brokers()), dice.choice(keys)))
        self._world.call_later(dice.uniform(100, 400), self._consume)

    async def _fetch(self, broker: NodeId, key: Key) -> None:
        """From leader or follower (KIP-392)."""
        place = (broker, key)
        fetch_partition = FetchPartition(key[1], -1, self._positions.get(place, 0), -1, -1, 4_000)
        request = FetchRequest(
            max_bytes=4_000, min_bytes=1, max_wait_ms=0, session_epoch=-1,
            topics=[FetchTopic(topic_id=key[0], partitions=[fetch_partition])],
        )  # fmt: skip
        with contextlib.suppress(NodeUnavailable):
            response = await self._clients.ask(broker, request)
            for data in (data for topic in response.responses for data in topic.partitions):
                self._on_records(place, bytes(data.records or b""))

    def _on_records(self, place: tuple[NodeId, Key], data: bytes) -> None:
        for _, header in iterate_batches(data):
            self.on_read(Read(place[0], place[1], header.base_offset, header.crc))
            self._positions[place] = max(self._positions.get(place, 0), header.next_offset)
