"""Producers and consumers of a simulated cluster. Acknowledgements to producers are kept, and must stay true.

Producers and consumers call a broker's handlers directly: a lost answer would only mean one acknowledgement less to
check. They choose the broker by the image of some broker, which may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch, parse_header
from ottla.replication.fetch_session import Key
from ottla.simulation.world import World

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.broker import SimulatedBrokerPart
    from ottla.simulation.node import SimulatedNode

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 4_000
WRONG_BROKER = 0.1


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


class Records:
    def __init__(self, world: World, nodes: Sequence[SimulatedNode]) -> None:
        self._world = world
        self._nodes = nodes
        self._number = 0
        self._positions: dict[tuple[NodeId, Key], int] = {}
        self.sent = 0
        self.acked: list[Promise] = []
        self.on_acked: Callable[[SimulatedNode, Promise], None] = lambda _node, _promise: None
        self.on_read: Callable[[Read], None] = lambda _read: None

    def start(self) -> None:
        dice = self._world.random
        self._pause_ms = dice.choice([12.0, 30.0, 60.0])
        self._world.call_later(1_000, self._produce)
        self._world.call_later(1_500, self._consume)

    def _awake(self) -> list[tuple[SimulatedNode, SimulatedBrokerPart]]:
        return [
            (node, node.broker)
            for node in self._nodes
            if node.broker is not None and node.broker.ready and node.paused_until <= self._world.now_ms
        ]

    # ------------------------------------------------------------------------------------------------------- producing

    def _produce(self) -> None:
        dice = self._world.random
        awake = self._awake()
        if awake:
            node, part = dice.choice(awake)
            image = part.context.image
            partition_keys = [(topic.id, index) for topic in image.topics_by_id.values() for index in topic.partitions]
            if partition_keys:
                key = dice.choice(partition_keys)
                leader = image.topics_by_id[key[0]].partitions[key[1]].leader
                if dice.random() >= WRONG_BROKER:
                    node, part = next(((n, b) for n, b in awake if n.node_id == leader), (node, part))
                self.send(node, part, key, acks=1 if dice.random() < 0.1 else ACKS_ALL)
        self._world.call_later(dice.expovariate(1 / self._pause_ms), self._produce)

    def send(self, node: SimulatedNode, part: SimulatedBrokerPart, key: Key, acks: int = ACKS_ALL) -> None:
        """Send one batch of one to three records."""
        self._number += 1
        self.sent += 1
        dice = self._world.random
        values = [b"%d/%d" % (self._number, index) + bytes(dice.choice([0, 10, 200])) for index in range(1, 4)]
        now_ms = node.clock.time_ms()
        batch = bytearray(build_batch([SimpleRecord(now_ms, None, v) for v in values[: dice.choice([1, 1, 3])]]))
        crc = parse_header(batch, 0).crc
        data = TopicProduceData(topic_id=key[0], partition_data=[PartitionProduceData(key[1], memoryview(batch))])
        node.touched = True
        life = node.life

        def done(response: Any) -> None:
            result = response.responses[0].partition_responses[0]
            if acks == ACKS_ALL and not result.error_code and node.life == life:
                promise = Promise(key, result.base_offset, crc)
                self.acked.append(promise)
                self.on_acked(node, promise)

        part.handle(ProduceRequest(acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data]), done)

    # ------------------------------------------------------------------------------------------------------- consuming

    def _consume(self) -> None:
        dice = self._world.random
        awake = self._awake()
        if awake:
            node, part = dice.choice(awake)
            held = [(topic_id, index) for topic_id, partitions in part.replicas.by_id.items() for index in partitions]
            if held:
                self._fetch(node, part, dice.choice(held))
        self._world.call_later(dice.uniform(50, 250), self._consume)

    def _fetch(self, node: SimulatedNode, part: SimulatedBrokerPart, key: Key) -> None:
        """From leader or follower (KIP-392)."""
        place = (node.node_id, key)
        fetch_partition = FetchPartition(key[1], -1, self._positions.get(place, 0), -1, -1, 4_000)
        request = FetchRequest(
            max_bytes=4_000, min_bytes=1, max_wait_ms=0, session_epoch=-1,
            topics=[FetchTopic(topic_id=key[0], partitions=[fetch_partition])],
        )  # fmt: skip

        def done(response: Any) -> None:
            for data in (data for topic in response.responses for data in topic.partitions):
                at = 0
                while data.records and at < len(data.records):
                    header = parse_header(data.records, at)
                    self.on_read(Read(node.node_id, key, header.base_offset, header.crc))
                    self._positions[place] = header.next_offset
                    at += header.size

        part.handle(request, done)
