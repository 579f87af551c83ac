"""How far the groups of this node are behind, in records and in seconds. Computed on request, in pieces between other
work.

A node reports the groups that it coordinates. Two values are needed: the end of a partition, and the time of the first
record that was not read. If this node has a replica of the partition, both come from its log. For other partitions the
node asks the leader: ListOffsets, and a Fetch of one batch if the record's time is not known yet. Times are cached
as long as the group stays at its offset.

A record's time comes from its batch's header: the first timestamp for the first record of a batch with client
timestamps, else the last timestamp. Everything is bounded, and values that do not come in time are left out of the
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.coordinator.groups.owned import owned_partitions
from ottla.coordinator.runtime import ShardState
from ottla.coordinator.share.batches import UNKNOWN_START_OFFSET
from ottla.model.errors import KafkaError
from ottla.model.marker_groups import is_marker_group
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.protocol.records_header import HEADER_BYTES, BatchHeader, parse_header
from ottla.runtime.shared_futures import outcome_of

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.coordinator.groups.group import Group
    from ottla.coordinator.groups.offset_store import OffsetStore
    from ottla.model.ids import NodeId, Uuid
    from ottla.replication.partition import Partition

MAX_POSITIONS = 50_000
"""Pairs of group and partition; further pairs are not reported."""
_MAX_FETCHES = 64
"""Batches fetched from one leader for one answer; the next answer fetches the rest."""
_FRESH_MS = 1000.0
_PEER_SECONDS = 3.0
_BREATH = 256
_NO_SESSION = -1


class _Position(NamedTuple):
    """Where a group continues to read."""

    group: str
    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    done: int
    """Records behind the offset that are already acknowledged (share groups)."""
    first: int
    """The first record that is still there: the offset, or where the log starts."""
    committed: bool = True
    """A partition that a member owns without a commit counts from its start; `offset` is not known before."""

    @property
    def record(self) -> tuple[Uuid, int, int]:
        return self.topic_id, self.partition, self.first


class Lag(NamedTuple):
    group: str
    topic: str
    partition: int
    records: int
    since_ms: int | None
    """The timestamp of the first record that was not read; None if it is not known (yet)."""
    committed: bool = True


class GroupLag:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._times: dict[tuple[Uuid, int, int], int] = {}
        self._lags: list[Lag] = []
        self._looked_ms = -_FRESH_MS
        self._looking: asyncio.Task[None] | None = None

    async def now(self) -> list[Lag]:
        """At most a second old; concurrent callers share one computation."""
        if self._broker.clock.monotonic_ms() - self._looked_ms >= _FRESH_MS:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.ensure_future(self._look())
            await outcome_of(self._looking)
        return self._lags

    async def _look(self) -> None:
        ours: list[tuple[_Position, Partition]] = []
        led_elsewhere: dict[NodeId, list[_Position]] = {}
        for position in self._positions():
            partition = self._broker.replicas.by_name.get(position.topic, {}).get(position.partition)
            if partition is not None:
                start = partition.log.log_start_offset
                offset = position.offset if position.committed else start
                ours.append((position._replace(offset=offset, first=max(offset, start)), partition))
            elif (leader := self._leader(position)) is not None:
                led_elsewhere.setdefault(leader, []).append(position)
        group_lags = []
        for number, (position, partition) in enumerate(ours, 1):
            group_lags.append(self._from_log(position, partition))
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        for lags in await asyncio.gather(
            *(self._from_leader(*leader_positions) for leader_positions in led_elsewhere.items())
        ):
            group_lags += lags
        open_records = {position.record for position, _ in ours} | {
            position.record for leader_positions in led_elsewhere.values() for position in leader_positions
        }
        self._times = {record: time for record, time in self._times.items() if record in open_records}
        self._lags = group_lags
        self._looked_ms = self._broker.clock.monotonic_ms()

    # Where the groups are

    def _positions(self) -> Iterator[_Position]:
        left = MAX_POSITIONS
        for position in self._all_positions():
            if left == 0:
                return
            left -= 1
            yield position

    def _all_positions(self) -> Iterator[_Position]:
        if self._broker.has_groups:
            for shard in self._broker.groups.shards:
                if shard.state is ShardState.ACTIVE:
                    yield from self._committed(shard.machine.offsets)
                    for group in shard.machine.groups.values():
                        yield from self._owned(group, shard.machine.offsets.topics(group.group_id))
        if self._broker.has_shares:
            yield from self._share_starts()

    def _committed(self, store: OffsetStore) -> Iterator[_Position]:
        by_name = self._broker.image.topics_by_name
        for group in store.group_ids():
            if is_marker_group(group):
                continue
            for topic, offsets in store.topics(group).items():
                if (topic_image := by_name.get(topic)) is not None:
                    for index, committed in offsets.items():
                        yield _Position(group, topic, topic_image.id, index, committed.offset, 0, committed.offset)

    def _owned(self, group: Group, committed: Mapping[str, Container[int]]) -> Iterator[_Position]:
        by_name = self._broker.image.topics_by_name
        for topic, index in owned_partitions(group, self._broker.image):
            topic_image = by_name.get(topic)
            if topic_image is not None and index not in committed.get(topic, ()):
                yield _Position(group.group_id, topic, topic_image.id, index, 0, 0, 0, committed=False)

    def _share_starts(self) -> Iterator[_Position]:
        by_id = self._broker.image.topics_by_id
        for shares in self._broker.shares.coordinator.shards:
            for key, state in shares.machine.states.items() if shares.state is ShardState.ACTIVE else ():
                topic = by_id.get(key.topic_id)
                if topic is not None and state.start_offset != UNKNOWN_START_OFFSET:
                    done = max(state.delivery_complete_count, 0)
                    start = state.start_offset
                    yield _Position(key.group_id, topic.name, key.topic_id, key.partition, start, done, start)

    def _leader(self, position: _Position) -> NodeId | None:
        topic = self._broker.image.topics_by_id.get(position.topic_id)
        row = topic.partitions.get(position.partition) if topic is not None else None
        return row.leader if row is not None and row.leader >= 0 else None

    # Our own logs

    def _from_log(self, position: _Position, partition: Partition) -> Lag:
        records = _behind(position, partition.high_watermark)
        if records and position.record not in self._times:
            try:
                log_slice = partition.log.read(position.first, 1, max_offset=partition.high_watermark)
                if log_slice.length:
                    self._remember(position, parse_header(log_slice.file.pread(HEADER_BYTES, log_slice.position), 0))
            except (KafkaError, OSError):  # a directory that has failed, a segment that was just deleted
                pass
        return self._lag(position, records)

    def _remember(self, position: _Position, batch: BatchHeader) -> None:
        self._times[position.record] = batch.time_from(position.first)

    def _lag(self, position: _Position, records: int) -> Lag:
        since_ms = self._times.get(position.record) if records else None
        return Lag(position.group, position.topic, position.partition, records, since_ms, position.committed)

    # Logs of other brokers

    async def _from_leader(self, leader: NodeId, positions: list[_Position]) -> list[Lag]:
        try:
            async with asyncio.timeout(_PEER_SECONDS):
                ends = await self._offsets(leader, positions, LATEST)
                uncommitted = [position for position in positions if not position.committed]
                starts = await self._offsets(leader, uncommitted, EARLIEST) if uncommitted else {}
                positions = [_from_start(position, starts) for position in positions]
                unknown = {
                    position.record: position
                    for position in positions
                    if _behind(position, ends.get((position.topic, position.partition), 0))
                    and position.record not in self._times
                }
                for position in list(unknown.values())[:_MAX_FETCHES]:
                    await self._fetch_time(leader, position)
        except TimeoutError:
            return []
        return [
            self._lag(position, _behind(position, ends[position.topic, position.partition]))
            for position in positions
            if (position.topic, position.partition) in ends
        ]

    async def _offsets(self, leader: NodeId, positions: list[_Position], timestamp: int) -> dict[tuple[str, int], int]:
        topics: dict[str, set[int]] = {}
        for position in positions:
            topics.setdefault(position.topic, set()).add(position.partition)
        rows = [
            ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=timestamp) for index in sorted(indexes)])
            for name, indexes in topics.items()
        ]
        answer = await self._ask(leader, ListOffsetsRequest(topics=rows))
        if answer is None:
            return {}
        return {
            (topic.name, partition.partition_index): partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code == 0
        }

    async def _fetch_time(self, leader: NodeId, position: _Position) -> None:
        row = FetchPartition(position.partition, fetch_offset=position.offset, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            session_epoch=_NO_SESSION,
            topics=[FetchTopic(position.topic, position.topic_id, [row])],
        )
        answer = await self._ask(leader, request)
        for topic in answer.responses if answer is not None else ():
            for partition in topic.partitions:
                if len(partition.records or b"") >= HEADER_BYTES:
                    self._remember(position, parse_header(partition.records, 0))

    async def _ask(self, leader: NodeId, request: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(response: Any) -> None:
            if not answer.done():  # nobody waits any more
                answer.set_result(response)

        self._broker.peers.send(leader, request, done)
        return await answer


def _from_start(position: _Position, starts: dict[tuple[str, int], int]) -> _Position:
    if position.committed:
        return position
    start = starts.get((position.topic, position.partition), 0)
    return position._replace(offset=start, first=start)


def _behind(position: _Position, end: int) -> int:
    return max(0, end - position.offset - position.done)
