"""A transactional producer and its checker: committed records are there, aborted records never are, nothing is torn.

One transaction writes to several partitions; a reader with `read_committed` leaves out what was aborted, as clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import (
    SimpleRecord,
    build_batch,
)
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.committed_reads import committed_batches
from ottla.simulation.invariants import Violation
from ottla.simulation.records import ACKS_ALL, PRODUCE_TIMEOUT_MS, Records

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.replication.fetch_session import Key
    from ottla.simulation.clients import Clients

TRANSACTIONAL_ID = "payments"
TOPIC = "x1"
_PRODUCE_VERSION = 11
"""The last version before the broker adds partitions by itself."""


class TransactionalWork:
    def __init__(self, clients: Clients, records: Records) -> None:
        self._clients = clients
        self._records = records
        self._dice = random.Random(clients.world.seed * 37 + 11)  # noqa: S311 - a simulation must be repeatable
        self._number = 0
        self.writing = True
        self.committed: dict[int, int] = {}
        """Transaction whose commit was acknowledged -> the number of its partitions."""
        self.aborted: set[int] = set()
        self.open: set[int] = set()
        """Transactions that nobody has asked to commit: no reader may see their records."""
        self.seen: dict[int, set[Key]] = {}
        self._positions: dict[Key, int] = {}

    def start(self) -> None:
        if self._dice.random() < 0.5:
            self._clients.spawn(self._guarded(self._write))
            self._clients.spawn(self._guarded(self._read))

    async def _guarded(self, work: Callable[[], Any]) -> None:
        await asyncio.sleep(2)
        while self.writing or work == self._read:
            with contextlib.suppress(NodeUnavailable):
                await work()
            await asyncio.sleep(self._dice.uniform(0.1, 0.6))

    def partition_keys(self) -> list[Key]:
        image = self._clients.image
        topic = image.topics_by_name.get(TOPIC) if image is not None else None
        return [(topic.id, index) for topic in (topic,) if topic is not None for index in topic.partitions]

    # --------------------------------------------------------------------------------------------------------- writing

    async def _write(self) -> None:
        """One life of the producer: transactions until one of them gets no clear answer."""
        keys = self.partition_keys()
        if not keys:
            return
        coordinator = await self._coordinator()
        if coordinator is None:
            return
        request = InitProducerIdRequest(TRANSACTIONAL_ID, 20_000)
        response = await self._clients.ask(coordinator, request, version=4)
        if response.error_code:
            return
        producer = (response.producer_id, response.producer_epoch)
        sequences = dict.fromkeys(keys, 0)
        for _ in range(self._dice.randint(5, 50)):
            if not self.writing or not await self._transaction(coordinator, producer, sequences):
                return
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))

    async def _coordinator(self) -> NodeId | None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID])
        response = await self._clients.ask(self._dice.choice(self._clients.brokers()), request)
        return None if response.coordinators[0].error_code else response.coordinators[0].node_id

    async def _transaction(self, coordinator: NodeId, producer: tuple[int, int], sequences: dict[Key, int]) -> bool:
        self._number += 1
        number = self._number
        self.open.add(number)
        keys = self._dice.sample(sorted(sequences), self._dice.randint(1, len(sequences)))
        topics = [AddPartitionsToTxnTopic(TOPIC, [key[1] for key in keys])]
        added = await self._clients.ask(
            coordinator, AddPartitionsToTxnRequest([], TRANSACTIONAL_ID, *producer, topics), version=3
        )
        if any(p.partition_error_code for t in added.results_by_topic_v3_and_below for p in t.results_by_partition):
            return False
        for key in keys:
            if not await self._produce(key, number, producer, sequences):
                return False
        commit = self._dice.random() < 0.7
        if commit:
            self.open.discard(number)
        ended = await self._clients.ask(coordinator, EndTxnRequest(TRANSACTIONAL_ID, *producer, commit), version=4)
        if ended.error_code:
            return False
        if commit:
            self.committed[number] = len(keys)
        else:
            self.aborted.add(number)
        return True

    async def _produce(self, key: Key, number: int, producer: tuple[int, int], sequences: dict[Key, int]) -> bool:
        leader = self._records.leader(key)
        if leader is None:
            return False
        record = SimpleRecord(self._clients.time_ms(), None, b"x%d" % number)
        batch = build_batch(
            [record], producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequences[key],
            transactional=True,
        )  # fmt: skip
        sequences[key] += 1
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(key[1], bytes(batch))])
        request = ProduceRequest(TRANSACTIONAL_ID, ACKS_ALL, PRODUCE_TIMEOUT_MS, [data])
        response = await self._clients.ask(leader, request, version=_PRODUCE_VERSION)
        return not response.responses[0].partition_responses[0].error_code

    # --------------------------------------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        for key in self.partition_keys():
            leader = self._records.leader(key)
            if leader is not None:
                await self._fetch(leader, key)

    async def _fetch(self, leader: NodeId, key: Key) -> None:
        partition = FetchPartition(key[1], -1, self._positions.get(key, 0), -1, -1, 20_000)
        request = FetchRequest(
            max_bytes=20_000, min_bytes=1, max_wait_ms=0, session_epoch=-1, isolation_level=1,
            topics=[FetchTopic(topic_id=key[0], partitions=[partition])],
        )  # fmt: skip
        response = await self._clients.ask(leader, request)
        for data in (data for topic in response.responses for data in topic.partitions if not data.error_code):
            for position, records in committed_batches(data, self._positions.get(key, 0)):
                for record in records:
                    self._saw(key, int((record.value or b"x0")[1:]), record.offset)
                self._positions[key] = position

    def _saw(self, key: Key, number: int, offset: int) -> None:
        if number in self.aborted:
            raise Violation(f"{TOPIC}-{key[1]}: a record of the aborted transaction {number} is read at {offset}")
        if number in self.open:
            raise Violation(f"{TOPIC}-{key[1]}: a record of transaction {number} is read at {offset} before its end")
        if key in self.seen.setdefault(number, set()):
            raise Violation(f"{TOPIC}-{key[1]}: a record of transaction {number} is read twice, again at {offset}")
        self.seen[number].add(key)

    def judge(self, ends: dict[Key, int]) -> None:
        """After the last read. `ends`: where each partition ends."""
        if any(self._positions.get(key, 0) < end for key, end in ends.items()):
            behind = {key[1]: (self._positions.get(key, 0), end) for key, end in ends.items()}
            raise Violation(f"{TOPIC}: a reader of committed records stays behind: {behind}")
        for number, partitions in self.committed.items():
            if len(self.seen.get(number, ())) != partitions:
                raise Violation(
                    f"{TOPIC}: transaction {number} was committed in {partitions} partitions, "
                    f"and is read in {len(self.seen.get(number, ()))}"
                )
