"""Erasure of single keys: their values leave the log, and the keys of the files that held them are destroyed.

The topic's setting `ottla.encryption.forget` lists what to erase (`ottla.model.erasures`). Every replica erases by
itself, once its log reaches the listed offset. The replica rewrites the segments that hold such records under a new key
of the topic: their values become null, and their headers are removed. All other records stay unchanged. Then the
replica destroys the old key (`KeyCustody`). A finished erasure is noted with the log (`erasure_notes`). A crash at any
point repeats the work, which changes nothing a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from itertools import count
from typing import NamedTuple, Protocol

from ottla.env.logging import get_logger
from ottla.env.seams import Clock
from ottla.log.compaction import LogChangedError, OnlineLogs, TimeSlice, check_present, read_batches
from ottla.log.compaction_batches import steps_of_spans
from ottla.log.compaction_output import BlockingSync, CleanedSegment
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.erasures import Erasure, key_hash
from ottla.model.errors import KafkaError
from ottla.model.ids import Offset
from ottla.protocol.records import (
    BatchHeader,
    assemble_batch,
    batch_payload,
    encode_record,
    record_at,
    record_spans,
)

_log = get_logger(__name__)
SHORT_LOG_MS = 30_000
_NEVER_MS = float("inf")


class KeyCustody(Protocol):
    """What encryption at rest does for erasure."""

    def renew_key(self, directory: str, topic: str) -> None: ...

    def destroy_old_keys(self, directory: str, topic: str) -> None: ...

    def destroy_keys(self, directory: str, topic: str, dead: Collection[str] | None) -> None: ...

    def keyed_topics(self, directory: str) -> set[str]: ...

    def is_plain(self, path: str) -> bool: ...


class Eraser:
    __slots__ = ("_clock", "_custody", "_logs", "_refusals", "_short")

    def __init__(self, logs: OnlineLogs, clock: Clock, custody: KeyCustody) -> None:
        self._logs = logs
        self._clock = clock
        self._custody = custody
        self._short: dict[PartitionLog, _Short] = {}
        """Logs that end before the offset to erase."""
        self._refusals = count(1)

    def erase_next(self) -> Generator[BlockingSync | None, None, bool]:
        """The next topic of a directory that has something to erase, in slices; False when there is none."""
        chosen = self._choose()
        if chosen is None:
            return False
        log_dir, topic, work = chosen
        try:
            self._custody.renew_key(log_dir.path, topic)
            erased = 0
            for log, due in work:
                erased += yield from _erase(log, due, self._clock)
            self._custody.destroy_old_keys(log_dir.path, topic)
            for log, due in work:
                self._note_done(log, due)
        except LogChangedError:
            _log.info("erasure.abandoned", topic=topic)
            return True
        except OSError as error:
            self._refused(work)
            raise log_dir.storage_error(error) from error
        except KafkaError:
            self._refused(work)
            raise
        for log, _ in work:
            log.cleaning_refused = 0
        _log.info("keys.forgotten", topic=topic, directory=log_dir.path, records=erased)
        return True

    def _refused(self, work: list[tuple[PartitionLog, _Due]]) -> None:
        number = next(self._refusals)
        for log, _ in work:
            log.cleaning_refused = number

    def _choose(self) -> tuple[LogDirectory, str, list[tuple[PartitionLog, _Due]]] | None:
        self._short = {log: short for log, short in self._short.items() if not log.discarded}
        by_topic: dict[tuple[str, str], list[tuple[PartitionLog, _Due]]] = {}
        for log in self._logs.online_logs():
            if log.config.ottla_encryption_forget:
                due = [erasure for erasure in self._requested(log) if self._is_due(log, erasure)]
                if due:
                    work = by_topic.setdefault((log.log_dir.path, log.topic_partition.topic), [])
                    work.append((log, _Due(due, log.generation)))
        if not by_topic:
            return None
        # Work that a disk refused comes last: a full directory must not block erasure in the other directories.
        (_, topic), work = min(by_topic.items(), key=lambda item: max(log.cleaning_refused for log, _ in item[1]))
        return work[0][0].log_dir, topic, work

    def _requested(self, log: PartitionLog) -> Iterator[Erasure]:
        for text in log.config.ottla_encryption_forget:
            if text not in log.erasure_notes.entries:
                yield Erasure.parse(text)

    def _is_due(self, log: PartitionLog, erasure: Erasure) -> bool:
        end = erasure.ends.get(log.topic_partition.partition, 0)
        if end <= log.log_start_offset:
            return False
        return end <= log.log_end_offset or self._stays_short(log)

    def _stays_short(self, log: PartitionLog) -> bool:
        """Whether a log that ends before the offset to erase has not grown for `SHORT_LOG_MS`. Either the replica still
        fetches the rest of the log, or the rest is lost. A log that does not grow is erased up to its end.
        """
        now_ms, end = self._clock.monotonic_ms(), log.log_end_offset
        short = self._short.get(log)
        if short is None or short.end != end or short.generation != log.generation:
            self._short[log] = _Short(end, log.generation, now_ms)
            return False
        return now_ms - short.since_ms >= SHORT_LOG_MS

    def _note_done(self, log: PartitionLog, due: _Due) -> None:
        if log.discarded or log.generation != due.generation:
            return  # it was cut meanwhile and fetches again: looked at again
        partition = log.topic_partition.partition
        done = [str(erasure) for erasure in due.erasures if erasure.ends[partition] <= log.log_end_offset]
        before = [text for text in log.erasure_notes.entries if text in log.config.ottla_encryption_forget]
        if done:
            log.erasure_notes.write([*before, *done])
        if len(done) < len(due.erasures):
            self._short[log] = _Short(log.log_end_offset, log.generation, _NEVER_MS)
        else:
            self._short.pop(log, None)


class _Due(NamedTuple):
    erasures: list[Erasure]
    generation: int


class _Short(NamedTuple):
    end: Offset
    generation: int
    since_ms: float


def _erase(log: PartitionLog, due: _Due, clock: Clock) -> Generator[BlockingSync | None, None, int]:
    """Rewrite the segments that hold records to erase; returns how many records lost their value."""
    topic, partition = log.topic_partition
    erasures = sorted(due.erasures, key=lambda erasure: erasure.ends[partition])
    ends = {erasure.key_hash: erasure.ends[partition] for erasure in erasures}
    upper = max(ends.values())
    time_slice = TimeSlice(clock)
    affected: list[Segment] = []
    for segment in [segment for segment in log.segments if segment.base_offset < upper]:
        for batch, header in read_batches(log, segment):
            if (yield from _condemned(batch, header, topic, ends, time_slice)):
                affected.append(segment)
                break
    check_present(log, affected, due.generation)
    if log.active_segment in affected:
        log.roll(clock.time_ms())
    erased = 0
    for segment in affected:
        erased += yield from _rewrite(log, segment, ends, clock, time_slice)
    return erased


def _rewrite(
    log: PartitionLog, segment: Segment, ends: dict[str, Offset], clock: Clock, time_slice: TimeSlice
) -> Generator[BlockingSync | None, None, int]:
    generation = log.generation
    output = CleanedSegment(log, segment)
    finished = False
    erased = 0
    try:
        for batch, header in read_batches(log, segment):
            condemned = yield from _condemned(batch, header, log.topic_partition.topic, ends, time_slice)
            output.append(_without(batch, header, condemned) if condemned else batch)
            erased += len(condemned)
        for aborted in segment.aborted_transactions():
            output.note_aborted(aborted)
        sync = output.finish()
        yield sync
        if not sync.done:
            sync()
        check_present(log, [segment], generation)
        finished = True  # from here on it is the log's
        log.replace_segments([output.segment], [segment], clock.time_ms())
    finally:
        if not finished:
            output.discard()
    return erased


def _condemned(
    batch: bytes, header: BatchHeader, topic: str, ends: dict[str, Offset], time_slice: TimeSlice
) -> Generator[None, None, set[int]]:
    """The starts of the records in the payload that lose their value."""
    starts: set[int] = set()
    if header.is_control or not header.record_count:
        return starts
    payload = bytes(batch_payload(batch, 0, header))
    for spans in steps_of_spans(payload, header):
        for start, _, delta, _, key_start, key_end, is_null in spans:
            if key_start < 0 or is_null:
                continue
            if header.base_offset + delta < ends.get(key_hash(topic, payload[key_start:key_end]), 0):
                starts.add(start)
        if time_slice.used_up():
            yield None
            time_slice.restart()
    return starts


def _without(batch: bytes, header: BatchHeader, condemned: set[int]) -> bytearray:
    payload = bytes(batch_payload(batch, 0, header))
    out = bytearray()
    for start, end, *_ in record_spans(payload, header.record_count):
        if start in condemned:
            record = record_at(payload, start)
            encode_record(out, record[1], record[0], record[2], None)
        else:
            out += payload[start:end]
    return assemble_batch(
        out,
        header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
