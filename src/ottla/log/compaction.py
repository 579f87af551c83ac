"""Compaction of one log: keep the latest record of each key, in background steps.

`compact` is a generator that works for about `SLICE_MS` between two yields. Its driver (the event loop, a simulator, a
test) decides when the generator resumes. The generator yields None to give other work a turn. Before the exchange of
segments it yields a `BlockingSync`: the driver may run the sync in a thread, otherwise the generator runs it. New
segments grow under `.cleaned` names beside the log, and `PartitionLog.replace_segments` exchanges them for the old
segments. A crash before the exchange leaves only files that the next load removes. Truncation or deletion of a segment
in the meantime ends the pass.

There are two passes. The first pass maps each key of the dirty part to its latest offset, until the map is full. The
second pass rewrites every segment up to the end of the map. Compaction changes nothing at or after the first
uncleanable offset.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from ottla.env.seams import Clock
from ottla.log.compaction_batches import (
    BatchRules,
    LastBatch,
    control_type_of,
    filter_batch,
    steps_of_spans,
)
from ottla.log.compaction_keys import OffsetMap
from ottla.log.compaction_output import BlockingSync, CleanedSegment
from ottla.log.compaction_transactions import CleanedTransactions
from ottla.log.indexes import MAX_RELATIVE_OFFSET
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.ids import Offset, ProducerId, TimestampMs
from ottla.protocol.records import HEADER_BYTES, BatchHeader, batch_payload, parse_header

SLICE_MS = 1.0
READ_BYTES = 256 * 1024

Steps: TypeAlias = Generator[BlockingSync | None, None, None]


class LogChangedError(Exception):
    """A segment that was being compacted left the log; the pass is void and nothing was changed."""


class OnlineLogs(Protocol):
    """What the cleaner and the eraser need of `LogStore`."""

    def online_logs(self) -> Iterable[PartitionLog]: ...


class CleanerStats(NamedTuple):
    end_offset: Offset
    """The log is clean below here: the next pass starts with it."""
    keys: int
    bytes_read: int


class Moved:
    """How many bytes compaction has read and written; log.cleaner.io.max.bytes.per.second limits their rate."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class TimeSlice:
    """Measures a slice of work: `used_up` after `SLICE_MS`."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic_ms() + SLICE_MS

    def used_up(self) -> bool:
        return self._clock.monotonic_ms() >= self._until

    def restart(self) -> None:
        self._until = self._clock.monotonic_ms() + SLICE_MS


def compact(
    log: PartitionLog,
    first_dirty_offset: Offset,
    first_uncleanable_offset: Offset,
    *,
    clock: Clock,
    memory_bytes: int,
    moved: Moved | None = None,
) -> Generator[BlockingSync | None, None, CleanerStats]:
    """Clean [first_dirty_offset, first_uncleanable_offset) as far as the map reaches.

    LogChangedError when the log lost a segment meanwhile; OSError and KafkaError are the directory's. An abandoned
    generator (`close`) removes its files.
    """
    compaction = _Compaction(log, first_uncleanable_offset, clock, memory_bytes, Moved() if moved is None else moved)
    try:
        yield from compaction.map_keys(first_dirty_offset)
        yield from compaction.rewrite()
    finally:
        compaction.discard_output()
    return compaction.stats()


def run(steps: Generator[BlockingSync | None, None, CleanerStats]) -> CleanerStats:
    """Drive a compaction to its end, here and now."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            stats: CleanerStats = done.value
            return stats


class _Compaction:
    __slots__ = (
        "_bytes_read",
        "_full",
        "_log",
        "_map",
        "_moved",
        "_output",
        "_time_ms",
        "_time_slice",
        "_upper",
    )  # fmt: skip

    def __init__(self, log: PartitionLog, upper: Offset, clock: Clock, memory_bytes: int, moved: Moved) -> None:
        self._moved = moved
        self._log = log
        self._upper = upper
        self._time_slice = TimeSlice(clock)
        self._time_ms: TimestampMs = clock.time_ms()
        self._map = OffsetMap(memory_bytes)
        self._full = False
        self._output: CleanedSegment | None = None
        self._bytes_read = 0

    def stats(self) -> CleanerStats:
        offset_map = self._map
        return CleanerStats(offset_map.latest_offset + 1, len(offset_map), self._bytes_read)

    def discard_output(self) -> None:
        if self._output is not None:
            self._output.discard()
            self._output = None

    # ------------------------------------------------------------------------------------------------ keys

    def map_keys(self, start: Offset) -> Steps:
        """First pass: the latest offset of every key in the dirty part."""
        transactions = CleanedTransactions(self._log.aborted.between(start, self._upper))
        self._map.latest_offset = start - 1
        for segment in self._dirty_segments(start):
            position = segment.position_of(max(start, segment.base_offset))
            for batch, header in self._batches(segment, position if position is not None else segment.size):
                if header.base_offset >= self._upper:
                    break
                yield from self._map_batch(batch, header, start, transactions)
                if self._full:
                    return
        self._map.latest_offset = max(self._upper, start) - 1

    def _dirty_segments(self, start: Offset) -> list[Segment]:
        return [segment for segment in self._log.segments.between(start, self._upper) if segment.size]

    def _map_batch(self, batch: bytes, header: BatchHeader, start: Offset, transactions: CleanedTransactions) -> Steps:
        if header.is_control:
            transactions.on_control_batch(header, control_type_of(batch, header))
        elif not transactions.on_batch(header) and header.record_count:
            payload = bytes(batch_payload(batch, 0, header))
            base_offset = header.base_offset
            put = self._map.put
            for spans in steps_of_spans(payload, header):
                for span in spans:
                    offset = base_offset + span[2]
                    if span[4] >= 0 and offset >= start and not put(payload[span[4] : span[5]], offset):
                        self._full = True
                        return
                    self._map.latest_offset = offset
                yield from self._breathe()
        self._map.latest_offset = max(self._map.latest_offset, header.last_offset)
        yield from self._breathe()

    # ------------------------------------------------------------------------------------------------ rewriting

    def rewrite(self) -> Steps:
        """Second pass: rewrite every segment below the end of the map; small neighbours become one segment."""
        log = self._log
        end = self._map.latest_offset + 1
        # Only whole segments below the bound: what comes after it, open transactions too, must not be judged.
        bases = [segment.base_offset for segment in log.segments[1:]]
        segments = [
            segment
            for segment, following in zip(log.segments, bases, strict=False)
            if segment.base_offset < end and following <= self._upper
        ]
        if not segments:
            return
        rules = BatchRules(
            self._map,
            CleanedTransactions(log.aborted.between(segments[0].base_offset, self._upper)),
            _last_batches(log),
            self._upper,
            self._time_ms,
            log.config.delete_retention_ms,
        )
        for group in group_segments(segments, log):
            yield from self._rewrite_group(group, rules)

    def _rewrite_group(self, group: list[Segment], rules: BatchRules) -> Steps:
        output = self._output = CleanedSegment(self._log, group[0])
        generation = self._log.generation
        for segment in group:
            for batch, header in self._batches(segment, 0):
                for kept in filter_batch(batch, header, rules):
                    if kept:
                        output.append(kept)
                        self._moved.bytes += len(kept)
                    yield from self._breathe()
                while rules.transactions.kept:
                    output.note_aborted(rules.transactions.kept.pop())
        sync = output.finish()
        yield sync
        if not sync.done:
            sync()
        self._check_not_moved()
        check_present(self._log, group, generation)
        self._output = None  # from here on it is the log's
        self._log.replace_segments([output.segment], group, self._time_ms)
        yield None
        self._time_slice.restart()

    # ------------------------------------------------------------------------------------------------ reading

    def _batches(self, segment: Segment, position: int) -> Iterator[tuple[bytes, BatchHeader]]:
        for batch, header in read_batches(self._log, segment, position):
            self._check_not_moved()
            self._bytes_read += header.size
            self._moved.bytes += header.size
            yield batch, header

    def _check_not_moved(self) -> None:
        """A move that began meanwhile ends the pass, as in Kafka (see `future_copy`)."""
        if self._log.being_moved:
            raise LogChangedError(str(self._log.topic_partition))

    def _breathe(self) -> Steps:
        if self._time_slice.used_up():
            yield None
            self._time_slice.restart()


def check_present(log: PartitionLog, segments: list[Segment], generation: int | None = None) -> None:
    """LogChangedError when one of them has left the log, or the log was cut since `generation`: a segment that was cut
    is still there and has other records now.
    """
    present = log.segments
    if generation is not None and generation != log.generation:
        raise LogChangedError(str(log.topic_partition))
    if log.discarded or log.log_dir.offline or any(segment not in present for segment in segments):
        raise LogChangedError(str(log.topic_partition))


def read_batches(log: PartitionLog, segment: Segment, position: int = 0) -> Iterator[tuple[bytes, BatchHeader]]:
    """Each whole batch; the segment must still be in the log at every read."""
    end = segment.size
    while end - position >= HEADER_BYTES:
        check_present(log, [segment])
        chunk = segment.file.pread(min(READ_BYTES, end - position), position)
        size = parse_header(chunk, 0).size
        if size > len(chunk):
            chunk = segment.file.pread(min(size, end - position), position)
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            header = parse_header(chunk, at)
            if header.size > len(chunk) - at or header.size < HEADER_BYTES:
                break
            yield chunk[at : at + header.size], header
            at += header.size
        if at == 0:
            return
        position += at


def group_segments(segments: list[Segment], log: PartitionLog) -> list[list[Segment]]:
    """Neighbours that fit into one segment together, by bytes and by the reach of a relative offset."""
    limit = log.config.internal_segment_bytes or log.config.segment_bytes
    index_limit = log.config.segment_index_bytes
    groups: list[list[Segment]] = []
    size = index_size = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else log.active_segment.base_offset
        entries = len(segment.offset_index) * segment.offset_index.ENTRY.size
        if (
            groups
            and size + segment.size <= limit
            and index_size + entries <= index_limit
            and following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            size += segment.size
            index_size += entries
        else:
            groups.append([segment])
            size, index_size = segment.size, entries
    return groups


def _last_batches(log: PartitionLog) -> dict[ProducerId, LastBatch]:
    return {
        producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
        for producer_id, entry in log.producers.producers.items()
    }
