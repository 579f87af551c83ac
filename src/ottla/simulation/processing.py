"""Read-process-write: a transactional producer that sends its input's offsets with its output, and the checker.

Two processes have the same transactional id and fence each other; a process may sleep in the middle of a transaction.
What a reader with `read_committed` sees of the output, and what the group has committed of the input, must agree.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.ids import Uuid
from ottla.protocol.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.records import SimpleRecord, build_batch, iterate_records
from ottla.protocol.records_header import iterate_batches
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.committed_reads import committed_batches
from ottla.simulation.group_reader import REQUEST_MS, GroupWorld
from ottla.simulation.invariants import Violation
from ottla.simulation.processing_ledger import Input, ProcessingLedger
from ottla.simulation.records import ACKS_ALL, PRODUCE_TIMEOUT_MS

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.replication.fetch_session import Key

INPUT, OUTPUT = "p1", "q1"
GROUP = "processors"
TRANSACTIONAL_ID = "processor"
TRANSACTION_MS = 8_000
_PRODUCE_VERSION = 11
"""The last version before the broker adds partitions by itself."""
_FETCH_BYTES = 20_000
_MOST_RECORDS = 6


class Producer(NamedTuple):
    coordinator: NodeId
    id: int
    epoch: int


class Processing:
    def __init__(self, world: GroupWorld, is_over: Callable[[], bool]) -> None:
        self._world = world
        self._is_over = is_over
        self._number = 0
        self.ledger = ProcessingLedger(OUTPUT)
        self.final: dict[Key, int] | None = None
        """At the end: the committed offsets of the group."""
        self._ends: dict[Key, int] = {}
        """Partition of the input -> the offset that the last acknowledged commit of a transaction stored."""
        self._positions: dict[Key, int] = {}
        self._sequences: dict[tuple[Producer, Key], int] = {}

    def start(self) -> None:
        spawn = self._world.clients.spawn
        spawn(self._repeat(self._life, (0.1, 0.5)))
        spawn(self._repeat(self._life, (2.0, 6.0)))
        spawn(self._repeat(self._read_output, (0.3, 0.8)))

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], pause_s: tuple[float, float]) -> None:
        await asyncio.sleep(2)
        while not self._is_over():
            with contextlib.suppress(NodeUnavailable):
                await work()
            await asyncio.sleep(self._world.dice.uniform(*pause_s))

    # ------------------------------------------------------------------------------------------------------ processing

    async def _life(self) -> None:
        producer = await self.begin()
        for _ in range(self._world.dice.randint(3, 25)):
            if producer is None or self._is_over() or not await self._step(producer):
                return
            await asyncio.sleep(self._world.dice.uniform(0.05, 0.4))

    async def begin(self) -> Producer | None:
        """A producer that fences all earlier producers of the transactional id, and ends their transactions."""
        coordinator = await self._coordinator(TRANSACTIONAL_ID, 1)
        if coordinator is None:
            return None
        request = InitProducerIdRequest(TRANSACTIONAL_ID, TRANSACTION_MS)
        response = await self._world.clients.ask(coordinator, request, version=4, timeout_ms=REQUEST_MS)
        if response.error_code:
            return None
        return Producer(coordinator, response.producer_id, response.producer_epoch)

    async def _coordinator(self, name: str, kind: int) -> NodeId | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        broker = self._world.dice.choice(self._world.clients.brokers())
        response = await self._world.clients.ask(broker, request, timeout_ms=REQUEST_MS)
        return None if response.coordinators[0].error_code else int(response.coordinators[0].node_id)

    async def _step(self, producer: Producer) -> bool:
        """One transaction; False if this producer cannot go on."""
        positions = await self.offsets()
        if not positions:
            return True
        inputs: list[Input] = []
        for key in sorted(positions):
            inputs += await self._read_input(key, positions[key])
        outputs = self._world.keys([OUTPUT])
        if not inputs or not outputs:
            return True
        self._number += 1
        number = self._number
        self.ledger.open.add(number)
        return await self._transaction(producer, number, inputs, outputs)

    async def _transaction(self, producer: Producer, number: int, inputs: list[Input], outputs: list[Key]) -> bool:
        dice, ask = self._world.dice, self._world.clients.ask
        target = dice.choice(outputs)
        identity = (producer.id, producer.epoch)
        topics = [AddPartitionsToTxnTopic(OUTPUT, [target[1]])]
        added = await ask(
            producer.coordinator, AddPartitionsToTxnRequest([], TRANSACTIONAL_ID, *identity, topics), version=3
        )
        if any(p.partition_error_code for t in added.results_by_topic_v3_and_below for p in t.results_by_partition):
            return False
        if dice.random() < 0.06:
            await asyncio.sleep(dice.uniform(1, 4))
        if not await self._produce(producer, number, inputs, target):
            return False
        sent = await ask(producer.coordinator, AddOffsetsToTxnRequest(TRANSACTIONAL_ID, *identity, GROUP), version=3)
        if sent.error_code or not await self._send_offsets(producer, inputs):
            return False
        if dice.random() < 0.06:
            await asyncio.sleep(dice.uniform(1, 4))
        commit = dice.random() < 0.75
        if commit:
            self.ledger.open.discard(number)
        request = EndTxnRequest(TRANSACTIONAL_ID, *identity, commit)
        ended = await ask(producer.coordinator, request, version=4)
        if ended.error_code:
            return False
        if commit:
            self.ledger.committed[number] = inputs
            for record in inputs:
                self._ends[record.key] = max(self._ends.get(record.key, 0), record.offset + 1)
        else:
            self.ledger.aborted.add(number)
        return True

    async def _produce(self, producer: Producer, number: int, inputs: list[Input], target: Key) -> bool:
        leader = self._world.records.leader(target)
        if leader is None:
            return False
        now_ms = self._world.clients.time_ms()
        values = [b"%d %s %d %d" % (number, bytes(i.key[0]).hex().encode(), i.key[1], i.offset) for i in inputs]
        sequence = self._sequences.get((producer, target), 0)
        batch = build_batch(
            [SimpleRecord(now_ms, None, value) for value in values], producer_id=producer.id,
            producer_epoch=producer.epoch, base_sequence=sequence, transactional=True,
        )  # fmt: skip
        self._sequences[producer, target] = sequence + len(values)
        data = TopicProduceData(OUTPUT, partition_data=[PartitionProduceData(target[1], bytes(batch))])
        request = ProduceRequest(TRANSACTIONAL_ID, ACKS_ALL, PRODUCE_TIMEOUT_MS, [data])
        response = await self._world.clients.ask(leader, request, version=_PRODUCE_VERSION)
        return not response.responses[0].partition_responses[0].error_code

    async def _send_offsets(self, producer: Producer, inputs: list[Input]) -> bool:
        coordinator = await self._coordinator(GROUP, 0)
        if coordinator is None:
            return False
        ends: dict[int, int] = {}
        for record in inputs:
            ends[record.key[1]] = max(ends.get(record.key[1], 0), record.offset + 1)
        rows = [TxnOffsetCommitRequestPartition(index, offset) for index, offset in sorted(ends.items())]
        request = TxnOffsetCommitRequest(
            TRANSACTIONAL_ID, GROUP, producer.id, producer.epoch, topics=[TxnOffsetCommitRequestTopic(INPUT, rows)]
        )
        response = await self._world.clients.ask(coordinator, request, version=3)
        return not any(row.error_code for topic in response.topics for row in topic.partitions)

    async def offsets(self) -> dict[Key, int]:
        """The committed offsets of the input; without partitions that an open transaction may change."""
        coordinator = await self._coordinator(GROUP, 0)
        keys = self._world.keys([INPUT])
        if coordinator is None or not keys:
            return {}
        topic = OffsetFetchRequestTopics(topic_id=keys[0][0], partition_indexes=[key[1] for key in keys])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=[topic])], require_stable=True)
        ends = dict(self._ends)
        response = await self._world.clients.ask(coordinator, request, timeout_ms=REQUEST_MS)
        if response.groups[0].error_code or self._world.authority(GROUP) != coordinator:
            return {}
        rows = [(topic.topic_id, row) for topic in response.groups[0].topics for row in topic.partitions]
        offsets = {
            (topic_id, row.partition_index): max(row.committed_offset, 0)
            for topic_id, row in rows
            if not row.error_code
        }
        self._check_stable(offsets, ends)
        return offsets

    def _check_stable(self, offsets: dict[Key, int], ends: dict[Key, int]) -> None:
        """A stable offset is at least the offset of every transaction whose commit was acknowledged before the request.

        Only while transactions run: hours pass at the end, and the offsets may expire.
        """
        for key, offset in offsets.items():
            if offset < ends.get(key, 0) and not self._is_void() and not self._is_over():
                raise Violation(
                    f"{GROUP} has {offset} as the stable offset of {INPUT}-{key[1]}, after a transaction with offset "
                    f"{ends[key]} was committed"
                )

    def _is_void(self) -> bool:
        return any(truth.unclean for truth in self._world.truths.values())

    async def _read_input(self, key: Key, position: int) -> list[Input]:
        leader = self._world.records.leader(key)
        if leader is None:
            return []
        request = _fetch(key, position, isolation_level=0)
        response = await self._world.clients.ask(leader, request, timeout_ms=REQUEST_MS)
        inputs: list[Input] = []
        for data in (data for topic in response.responses for data in topic.partitions if not data.error_code):
            content = bytes(data.records or b"")
            for record in (r for at, _ in iterate_batches(content) for r in iterate_records(content, at)):
                if record.offset >= position and len(inputs) < _MOST_RECORDS:
                    inputs.append(Input(key, record.offset))
        return inputs

    # ------------------------------------------------------------------------------------------------------- the output

    async def _read_output(self) -> None:
        for key in self._world.keys([OUTPUT]):
            await self._read(key)

    async def _read(self, key: Key) -> bool:
        """Whether the reader is at the end, and no transaction is open."""
        leader = self._world.records.leader(key)
        if leader is None:
            return False
        request = _fetch(key, self._positions.get(key, 0), isolation_level=1)
        response = await self._world.clients.ask(leader, request, timeout_ms=REQUEST_MS)
        at_end = False
        for data in (data for topic in response.responses for data in topic.partitions if not data.error_code):
            for position, records in committed_batches(data, self._positions.get(key, 0)):
                for record in records:
                    self._saw(bytes(record.value or b""))
                self._positions[key] = position
            at_end = self._positions.get(key, 0) >= data.high_watermark
        return at_end

    def _saw(self, value: bytes) -> None:
        number_text, topic_id, index, offset = value.split()
        number = int(number_text)
        record = Input((Uuid(bytes.fromhex(topic_id.decode())), int(index)), int(offset))
        self.ledger.saw(number, record)

    # --------------------------------------------------------------------------------------------------------- the end

    async def finish(self) -> None:
        """End what is open, and read everything."""
        while self.final is None:
            try:
                if await self.begin() is not None:
                    keys = self._world.keys([INPUT])
                    offsets = await self.offsets()
                    ends = [await self._read(key) for key in self._world.keys([OUTPUT])]
                    if set(offsets) == set(keys) and all(ends):
                        self.final = offsets
            except NodeUnavailable:
                pass
            await asyncio.sleep(0.1)

    def judge(self) -> None:
        if self._is_void():
            return
        if self.final is None:
            raise Violation(
                f"{TRANSACTIONAL_ID}: the output or the offsets of {GROUP} do not become stable after healing"
            )
        self.ledger.judge(self.final)


def _fetch(key: Key, position: int, isolation_level: int) -> FetchRequest:
    partition = FetchPartition(key[1], -1, position, -1, -1, _FETCH_BYTES)
    return FetchRequest(
        max_bytes=_FETCH_BYTES, min_bytes=1, max_wait_ms=0, session_epoch=-1, isolation_level=isolation_level,
        topics=[FetchTopic(topic_id=key[0], partitions=[partition])],
    )  # fmt: skip
