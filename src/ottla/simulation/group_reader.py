"""What members of both protocols do alike: find the coordinator, read partitions, commit and fetch offsets.

A member is one coroutine: its requests follow each other, and each has one answer or none.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.coordinator.records import GroupKindRecord, GroupMetadataRecord, encode
from ottla.coordinator.shards import partition_for
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
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
from ottla.protocol.records_header import iterate_batches
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.group_ledger import AnsweredRequest, GroupLedger
from ottla.simulation.records import Read, Records

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.replication.fetch_session import Key
    from ottla.simulation.clients import Clients
    from ottla.simulation.replica_invariants import Truth

OFFSETS_TOPIC = "__consumer_offsets"
REQUEST_MS = 1_500.0
_FETCH_BYTES = 8_000
_MISHAPS = 0.03
"""How often a turn of a member ends in a mishap, before the end is near."""
_COORDINATOR_GONE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_REFUSED = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The commit is not stored and never will be."""


class GroupWorld(NamedTuple):
    """What members of every kind use."""

    clients: Clients
    records: Records
    truths: dict[Key, Truth]
    dice: random.Random
    is_calm: Callable[[], bool]
    """Whether members must behave well from now on, because the end is near."""

    def authority(self, group_id: str) -> NodeId | None:
        """The newest coordinator of a group: the leader of the newest epoch that any node has seen."""
        image = self.clients.image
        topic = image.topics_by_name.get(OFFSETS_TOPIC) if image is not None else None
        if topic is None:
            return None
        truth = self.truths.get((topic.id, partition_for(group_id, len(topic.partitions))))
        return truth.leaders[max(truth.leaders)] if truth is not None and truth.leaders else None

    def is_void(self, group_id: str) -> bool:
        """The group's records were lost by an unclean election."""
        image = self.clients.image
        topic = image.topics_by_name.get(OFFSETS_TOPIC) if image is not None else None
        truth = None
        if topic is not None:
            truth = self.truths.get((topic.id, partition_for(group_id, len(topic.partitions))))
        return truth is not None and truth.unclean

    def deletions(self, group_id: str) -> int:
        """How often a coordinator has deleted the group: a group without members and offsets goes, as with Kafka."""
        image = self.clients.image
        topic = image.topics_by_name.get(OFFSETS_TOPIC) if image is not None else None
        if topic is None:
            return 0
        truth = self.truths.get((topic.id, partition_for(group_id, len(topic.partitions))))
        records = GroupMetadataRecord(group_id, None), GroupKindRecord(ConsumerGroupMetadataKey(group_id), None)
        return 0 if truth is None else sum(truth.tombstones[encode(record)[0]] for record in records)

    def keys(self, names: Collection[str]) -> list[Key]:
        image = self.clients.image
        topics = [image.topics_by_name.get(name) for name in sorted(names)] if image is not None else []
        return [(topic.id, index) for topic in topics if topic is not None for index in topic.partitions]

    def name(self, key: Key) -> str | None:
        image = self.clients.image
        topic = image.topics_by_id.get(key[0]) if image is not None else None
        return None if topic is None else topic.name


class GroupReader:
    """A member's partitions and positions. Subclasses speak the protocol of the membership."""

    def __init__(self, world: GroupWorld, ledger: GroupLedger, name: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name
        self.member_id = ""
        self.epoch = 0
        """The member epoch or the generation."""
        self.instance_id: str | None = None
        self.owned: set[Key] = set()
        self.positions: dict[Key, int] = {}
        self.coordinator: NodeId | None = None
        self._dirty: set[Key] = set()
        self._exchange = AnsweredRequest(-1, 0.0, 0.0)

    @property
    def now_ms(self) -> float:
        return self.world.clients.world.now_ms

    # ----------------------------------------------------------------------------------------------------- coordinator

    async def ask_coordinator(self, request: Any, *, version: int | None = None, timeout_ms: float = REQUEST_MS) -> Any:
        """The answer. Raises NodeUnavailable without one, and looks for the coordinator again next time."""
        if self.coordinator is None:
            self.coordinator = await self._find()
        broker, sent_ms = self.coordinator, self.now_ms
        group_id = self.ledger.group_id
        before, deletions = self.world.authority(group_id), self.world.deletions(group_id)
        try:
            response = await self.world.clients.ask(broker, request, version=version, timeout_ms=timeout_ms)
        except NodeUnavailable:
            self.coordinator = None
            raise
        after = self.world.authority(group_id)
        self.is_authority = before == broker == after and self.world.deletions(group_id) == deletions
        self.ledger.in_life(self.world.deletions(group_id))
        self.ledger.void = self.ledger.void or self.world.is_void(group_id)
        self._exchange = AnsweredRequest(broker, sent_ms, self.now_ms)
        return response

    is_authority = False
    """Whether the last answer came from the newest coordinator, and the group was the same group all the time."""

    async def _find(self) -> NodeId:
        brokers = self.world.clients.brokers()
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.ledger.group_id])
        response = await self.world.clients.ask(self.world.dice.choice(brokers), request, timeout_ms=REQUEST_MS)
        coordinator = response.coordinators[0]
        if coordinator.error_code:
            raise NodeUnavailable(f"no coordinator: {coordinator.error_code}")
        return int(coordinator.node_id)

    def lost_coordinator(self, code: int) -> bool:
        if code in _COORDINATOR_GONE:
            self.coordinator = None
            return True
        return False

    # --------------------------------------------------------------------------------------------------------- offsets

    async def commit(self) -> None:
        """Commit all positions that moved."""
        ledger = self.ledger
        moved = {key: self.positions[key] for key in sorted(self._dirty) if key in self.positions}
        self._dirty.clear()
        if not moved:
            return
        topics: dict[Any, OffsetCommitRequestTopic] = {}
        for key, offset in moved.items():
            topic = topics.setdefault(key[0], OffsetCommitRequestTopic(topic_id=key[0], partitions=[]))
            topic.partitions.append(OffsetCommitRequestPartition(key[1], offset))
            ledger.trying(key, offset)
        floors = {key: ledger.floor(key) for key in moved}
        request = OffsetCommitRequest(
            self.ledger.group_id, self.epoch, self.member_id, self.instance_id, topics=list(topics.values())
        )
        unclear, epoch = dict(moved), self.epoch
        try:
            response = await self.ask_coordinator(request)
            for topic_response in response.topics:
                for row in topic_response.partitions:
                    key = (topic_response.topic_id, row.partition_index)
                    if not row.error_code:
                        self.check_commit(key, epoch)
                        ledger.committed(self.name, key, unclear.pop(key), floors[key])
                    elif row.error_code in _REFUSED:
                        unclear.pop(key)
                    self.lost_coordinator(row.error_code)
        finally:
            for key, offset in unclear.items():
                ledger.unclear(key, offset)

    def check_commit(self, key: Key, epoch: int) -> None:
        """A commit of `epoch` was acknowledged: whether this member may still commit."""

    async def find_positions(self) -> None:
        """Where the group goes on reading the partitions that this member got."""
        missing = sorted(key for key in self.owned if key not in self.positions)
        if not missing:
            return
        floors = {key: self.ledger.floor(key) for key in missing}
        topics: dict[Any, OffsetFetchRequestTopics] = {}
        for key in missing:
            topic = topics.setdefault(key[0], OffsetFetchRequestTopics(topic_id=key[0], partition_indexes=[]))
            topic.partition_indexes.append(key[1])
        group = OffsetFetchRequestGroup(self.ledger.group_id, *self._reader(), list(topics.values()))
        response = await self.ask_coordinator(OffsetFetchRequest(groups=[group], require_stable=True))
        answer = response.groups[0]
        if answer.error_code:
            self.lost_coordinator(answer.error_code)
            return
        for topic_response in answer.topics:
            for row in topic_response.partitions:
                key = (topic_response.topic_id, row.partition_index)
                if row.error_code:
                    continue
                if self.is_authority:
                    self.ledger.fetched(key, row.committed_offset, floors[key])
                if key in self.owned:
                    self.positions[key] = max(row.committed_offset, 0)

    def _reader(self) -> tuple[str | None, int]:
        """Member id and epoch of an OffsetFetch."""
        return None, -1

    # --------------------------------------------------------------------------------------------------------- records

    async def poll(self) -> None:
        """Read from the leaders of all partitions, and process what comes."""
        by_leader: dict[NodeId, list[Key]] = {}
        for key in sorted(self.owned):
            leader = self.world.records.leader(key)
            if key in self.positions and leader is not None:
                by_leader.setdefault(leader, []).append(key)
        for leader, keys in by_leader.items():
            topics: dict[Any, FetchTopic] = {}
            for key in keys:
                topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0], partitions=[]))
                topic.partitions.append(FetchPartition(key[1], -1, self.positions[key], -1, -1, _FETCH_BYTES))
            request = FetchRequest(
                max_bytes=_FETCH_BYTES * len(keys), min_bytes=1, max_wait_ms=0, session_epoch=-1,
                topics=list(topics.values()),
            )  # fmt: skip
            response = await self.world.clients.ask(leader, request, timeout_ms=REQUEST_MS)
            for topic_response in response.responses:
                for row in topic_response.partitions:
                    key = (topic_response.topic_id, row.partition_index)
                    if not row.error_code and key in self.owned:
                        self._process(leader, key, bytes(row.records or b""))

    def _process(self, leader: NodeId, key: Key, data: bytes) -> None:
        for _, header in iterate_batches(data):
            position = self.positions[key]
            self.world.records.on_read(Read(leader, key, header.base_offset, header.crc))
            truth = self.world.truths.get(key)
            if truth is None or not truth.unclean:
                self.ledger.polled(self.name, key, position, header.base_offset, header.next_offset)
            self.positions[key] = max(position, header.next_offset)
            self._dirty.add(key)

    def drop(self, keys: Collection[Key]) -> None:
        """Stop reading these partitions."""
        self.ledger.dropped(self.name, keys)
        for key in keys:
            self.positions.pop(key, None)
            self._dirty.discard(key)
        self.owned -= set(keys)


class SimulatedMember(GroupReader):
    """One process of a group. Subclasses have the turns and the mishaps of their protocol."""

    async def run(self) -> None:
        """One process, until the process leaves or dies."""
        dice = self.world.dice
        while True:
            try:
                await self._turn()
            except NodeUnavailable:
                self._missed_answer()
            await asyncio.sleep(dice.uniform(0.1, 0.35))
            if not self.world.is_calm() and dice.random() < _MISHAPS and not await self._mishap():
                return

    @abstractmethod
    async def _turn(self) -> None:
        """A heartbeat, and the work between two heartbeats."""

    def _missed_answer(self) -> None:
        """A request of the turn got no answer."""

    @abstractmethod
    async def _mishap(self) -> bool:
        """False if the member is gone."""
