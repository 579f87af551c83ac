"""The work of the clients beside plain producers: keyed records, idempotent producers, offset commits, and admins who
delete records, move replicas and change who has them. Each has its promises, which `ledger.py` and this file check.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.generated.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.records import SimpleRecord, build_batch, parse_header
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.invariants import Violation
from ottla.simulation.records import ACKS_ALL, Promise, Records, produce_request

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.replication.fetch_session import Key
    from ottla.simulation.clients import Clients
    from ottla.simulation.ledger import Ledger

LOG_FOLDERS = ("/logs", "/logs-2")
GROUP = "readers"
_RETRY_S = 0.15
_GIVE_UP = 40
_COMMIT_SHARE = 0.5
"""Of the reads of a committed offset: a commit just before the read hides what a coordinator has lost."""
_NEW_PRODUCER = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Loads:
    """Each kind of work runs in a part of the seeds, with dice of its own."""

    def __init__(self, clients: Clients, records: Records, ledger: Ledger) -> None:
        self._clients = clients
        self._records = records
        self._ledger = ledger
        self._dice = random.Random(clients.world.seed * 31 + 5)  # noqa: S311 - a simulation must be repeatable
        self.stopped = False
        self._number = 0
        self._committed_offset = -1
        self.done: dict[str, int] = {}
        """How often each kind of work came to its end."""

    def start(self) -> None:
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._idempotent, self._idempotent, self._keyed, self._delete_records, self._commit_offsets,
            self._reassign, self._move,
        ]  # fmt: skip
        for kind in kinds:
            if self._dice.random() < 0.6:
                self._clients.spawn(self._repeat(kind))

    async def _repeat(self, kind: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.sleep(1.5)
        while not self.stopped:
            try:
                await kind()
            except NodeUnavailable:
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(self._dice.uniform(0.05, 0.5))

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def _keys(self, kind: str) -> list[tuple[str, Key]]:
        image = self._clients.image
        topics = image.topics_by_id.values() if image is not None else ()
        return [(t.name, (t.id, index)) for t in topics if t.name.startswith(kind) for index in t.partitions]

    def _any_broker(self) -> NodeId:
        return self._dice.choice(self._clients.brokers())

    # ------------------------------------------------------------------------------------------------------- producers

    async def _keyed(self) -> None:
        """Values and tombstones for a few keys of a compacted topic."""
        keys = self._keys("c")
        if not keys:
            return
        _, key = self._dice.choice(keys)
        records = []
        for _ in range(self._dice.choice([1, 2, 4])):
            self._number += 1
            value = (
                None if self._dice.random() < 0.25 else b"%d of %s" % (self._number, bytes(key[0]).hex()[:8].encode())
            )
            records.append(SimpleRecord(self._now_ms(), b"k%d" % self._dice.randrange(12), value))
        await self._records.deliver(key, bytes(build_batch(records)))
        self._count("keyed")

    def _now_ms(self) -> int:
        return self._clients.time_ms()

    async def _idempotent(self) -> None:
        """One life of an idempotent producer: batches in order on one connection, sent again until acknowledged."""
        keys = self._keys("t")
        if not keys:
            return
        response = await self._clients.ask(self._any_broker(), InitProducerIdRequest(None, 60_000), version=4)
        if response.error_code:
            return
        _, key = self._dice.choice(keys)
        sequence = 0
        for _ in range(self._dice.randint(3, 15)):
            window = []
            for _ in range(self._dice.choice([1, 1, 3])):
                self._number += 1
                records = [
                    SimpleRecord(self._now_ms(), None, b"i%d" % self._number) for _ in range(self._dice.choice([1, 2]))
                ]
                batch = build_batch(
                    records, producer_id=response.producer_id, producer_epoch=response.producer_epoch,
                    base_sequence=sequence,
                )  # fmt: skip
                sequence += len(records)
                window.append(bytes(batch))
            if not await self._until_acknowledged(key, window):
                return
            self._count("idempotent")
            await asyncio.sleep(self._dice.uniform(0.0, 0.1))

    async def _until_acknowledged(self, key: Key, window: list[bytes]) -> bool:
        """False if this producer cannot go on: its topic is gone, or it has lost its place."""
        for batch in window:
            self._ledger.sent[parse_header(batch, 0).crc] = key
        for _ in range(_GIVE_UP):
            leader = self._records.leader(key)
            if leader is not None:
                client = self._clients.connection(leader)
                answers = await asyncio.gather(
                    *(client.send(produce_request(key, batch, ACKS_ALL)) for batch in window), return_exceptions=True
                )
                client.close()
                for answer in answers:
                    if isinstance(answer, BaseException):
                        break
                    result = answer.responses[0].partition_responses[0]
                    if result.error_code in _NEW_PRODUCER:
                        return False
                    if result.error_code:
                        break
                    self._records.acknowledged(Promise(key, result.base_offset, parse_header(window.pop(0), 0).crc))
                if not window:
                    return True
            if self._gone(key):
                return False
            await asyncio.sleep(_RETRY_S)
        return False

    def _gone(self, key: Key) -> bool:
        image = self._clients.image
        return image is not None and key[0] not in image.topics_by_id

    # ---------------------------------------------------------------------------------------------------------- offsets

    async def _commit_offsets(self) -> None:
        """A committed offset never goes back, also with a new coordinator."""
        keys = self._keys("g")
        if not keys:
            return
        broker = await self._coordinator(GROUP, 0)
        if broker is None:
            return
        acknowledged = self._committed_offset
        if self._dice.random() < _COMMIT_SHARE:
            tried = self._number = self._number + 1
            topic = OffsetCommitRequestTopic(keys[0][0], partitions=[OffsetCommitRequestPartition(0, tried)])
            response = await self._clients.ask(broker, OffsetCommitRequest(GROUP, topics=[topic]), version=8)
            if not response.topics[0].partitions[0].error_code:
                self._committed_offset = acknowledged = max(tried, self._committed_offset)
                self._count("offset commit")
        topics = [OffsetFetchRequestTopics(keys[0][0], partition_indexes=[0])]
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)], require_stable=True)
        response = await self._clients.ask(broker, fetch, version=8)
        partition = response.groups[0].topics[0].partitions[0] if response.groups[0].topics else None
        if response.groups[0].error_code or partition is None or partition.error_code:
            return
        if partition.committed_offset < acknowledged and not self.stopped:  # hours may pass at the end
            raise Violation(
                f"group {GROUP}: offset {acknowledged} was acknowledged, and node {broker} has {partition.committed_offset}"
            )

    async def _coordinator(self, name: str, kind: int) -> NodeId | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        response = await self._clients.ask(self._any_broker(), request)
        coordinator = response.coordinators[0]
        return None if coordinator.error_code else coordinator.node_id

    # ------------------------------------------------------------------------------------------------------------ admins

    async def _delete_records(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.2, 2))
        keys = self._keys("t")
        if not keys:
            return
        name, key = self._dice.choice(keys)
        leader = self._records.leader(key)
        truth_end = self._records.committed_end(key)
        if leader is None or not truth_end:
            return
        offset = self._dice.randint(0, truth_end)
        self._ledger.asked_to_delete[key] = max(offset, self._ledger.asked_to_delete.get(key, 0))
        topic = DeleteRecordsTopic(name, [DeleteRecordsPartition(key[1], offset)])
        response = await self._clients.ask(leader, DeleteRecordsRequest([topic], 3_000))
        result = response.topics[0].partitions[0]
        if not result.error_code and result.low_watermark < offset:
            raise Violation(f"{name}-{key[1]}: records before {offset} are deleted, and a replica begins at {result}")
        if not result.error_code and not self._gone(key):
            self._ledger.on_deleted(leader, key, result.low_watermark)
            self._count("records deleted")

    async def _reassign(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.5, 3))
        keys = self._keys("t") + self._keys("c")
        if not keys:
            return
        name, key = self._dice.choice(keys)
        brokers = self._clients.brokers()
        replicas = self._dice.sample(brokers, min(self._dice.choice([2, 3]), len(brokers)))
        topic = ReassignableTopic(name, [ReassignablePartition(key[1], replicas)])
        response = await self._clients.ask(
            self._any_broker(), AlterPartitionReassignmentsRequest(5_000, topics=[topic])
        )
        if not response.error_code:
            self._count("reassigned")

    async def _move(self) -> None:
        """A replica to the other directory of its broker."""
        await asyncio.sleep(self._dice.uniform(0.2, 1.5))
        keys = self._keys("t") + self._keys("c")
        if not keys:
            return
        name, key = self._dice.choice(keys)
        folder = AlterReplicaLogDir(self._dice.choice(LOG_FOLDERS), [AlterReplicaLogDirTopic(name, [key[1]])])
        response = await self._clients.ask(self._any_broker(), AlterReplicaLogDirsRequest([folder]))
        if not response.results[0].partitions[0].error_code:
            self._count("moved")
