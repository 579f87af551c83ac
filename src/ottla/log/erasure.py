"""Erasure of single keys: their values leave the log, and the keys of the files that held them are destroyed.

The topic's setting `ottla.encryption.forget` lists what to erase (`ottla.model.erasures`). Every replica does it by itself, once it has the log up
to that offset: the segments that hold such records are written anew with the value null and the headers gone, everything
else as it stands, under a new key of the topic; then the old key is destroyed (`KeyCustody`). What is done is noted in
the log directory's `erasure-checkpoint`; a crash at any point repeats the work, which changes nothing a second time.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from typing import Protocol

from ottla.env.logging import get_logger
from ottla.env.seams import Clock
from ottla.log.compaction import LogChangedError, Pace, check_present, read_batches
from ottla.log.compaction_batches import steps_of_spans
from ottla.log.compaction_output import BlockingSync, CleanedSegment
from ottla.log.file_names import ERASURE_CHECKPOINT
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.erasures import Erasure, key_hash
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
Steps = Generator[BlockingSync | None, None, None]


class KeyCustody(Protocol):
    """What encryption at rest does for erasure."""

    def renew_key(self, directory: str, topic: str) -> None: ...

    def destroy_old_keys(self, directory: str, topic: str) -> None: ...


class Logs(Protocol):
    """What the eraser needs of `LogStore`."""

    def online_logs(self) -> Iterable[PartitionLog]: ...


class Eraser:
    __slots__ = ("_clock", "_custody", "_done", "_logs")

    def __init__(self, logs: Logs, clock: Clock, custody: KeyCustody) -> None:
        self._logs = logs
        self._clock = clock
        self._custody = custody
        self._done: dict[str, dict[str, list[str]]] = {}

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
            self._note_done(log_dir, work)
        except LogChangedError:
            _log.info("erasure.abandoned", topic=topic)
            return True
        except OSError as error:
            raise log_dir.storage_error(error) from error
        _log.info("keys.forgotten", topic=topic, directory=log_dir.path, records=erased)
        return True

    def _choose(self) -> tuple[LogDirectory, str, list[tuple[PartitionLog, list[Erasure]]]] | None:
        found: dict[tuple[str, str], list[tuple[PartitionLog, list[Erasure]]]] = {}
        for log in self._logs.online_logs():
            if log.config.ottla_encryption_forget:
                due = list(self._due(log))
                if due:
                    found.setdefault((log.log_dir.path, log.topic_partition.topic), []).append((log, due))
        for (_, topic), work in found.items():
            return work[0][0].log_dir, topic, work
        return None

    def _due(self, log: PartitionLog) -> Iterator[Erasure]:
        done = self._done_in(log.log_dir).get(str(log.topic_partition), [])
        for text in log.config.ottla_encryption_forget:
            if text not in done:
                erasure = Erasure.parse(text)
                end = erasure.ends.get(log.topic_partition.partition, 0)
                if log.log_start_offset < end <= log.log_end_offset:
                    yield erasure

    # What is done

    def _done_in(self, log_dir: LogDirectory) -> dict[str, list[str]]:
        done = self._done.get(log_dir.path)
        if done is None:
            path = f"{log_dir.path}/{ERASURE_CHECKPOINT}"
            done = {}
            if log_dir.storage.exists(path):
                try:
                    done = dict(json.loads(log_dir.storage.read_bytes(path)))
                except ValueError as error:  # everything is looked at again: more work, no harm
                    _log.warning("checkpoint.rejected", path=path, error=str(error))
            self._done[log_dir.path] = done
        return done

    def _note_done(self, log_dir: LogDirectory, work: list[tuple[PartitionLog, list[Erasure]]]) -> None:
        done = self._done_in(log_dir)
        for log, due in work:
            wanted = log.config.ottla_encryption_forget
            before = [text for text in done.get(str(log.topic_partition), []) if text in wanted]
            done[str(log.topic_partition)] = [*before, *(str(erasure) for erasure in due)]
        present = {str(log.topic_partition) for log in self._logs.online_logs() if log.log_dir is log_dir}
        for partition in done.keys() - present:
            del done[partition]
        log_dir.storage.write_atomic(f"{log_dir.path}/{ERASURE_CHECKPOINT}", json.dumps(done).encode())


def _erase(log: PartitionLog, due: list[Erasure], clock: Clock) -> Generator[BlockingSync | None, None, int]:
    """Write the segments anew that hold what is due; how many records lost their value."""
    topic, partition = log.topic_partition
    ends = {erasure.key_hash: erasure.ends[partition] for erasure in sorted(due, key=lambda e: e.ends[partition])}
    upper = max(ends.values())
    pace = Pace(clock)
    affected: list[Segment] = []
    for segment in [each for each in log.segments if each.base_offset < upper]:
        for batch, header in read_batches(log, segment):
            if (yield from _condemned(batch, header, topic, ends, pace)):
                affected.append(segment)
                break
    if log.active_segment in affected:
        log.roll(clock.time_ms())
    erased = 0
    for segment in affected:
        erased += yield from _rewrite(log, segment, ends, clock, pace)
    return erased


def _rewrite(
    log: PartitionLog, segment: Segment, ends: dict[str, Offset], clock: Clock, pace: Pace
) -> Generator[BlockingSync | None, None, int]:
    output = CleanedSegment(log, segment)
    finished = False
    erased = 0
    try:
        for batch, header in read_batches(log, segment):
            condemned = yield from _condemned(batch, header, log.topic_partition.topic, ends, pace)
            output.append(_without(batch, header, condemned) if condemned else batch)
            erased += len(condemned)
        for aborted in segment.aborted_transactions():
            output.note_aborted(aborted)
        sync = output.finish()
        yield sync
        if not sync.done:
            sync()
        check_present(log, [segment])
        log.replace_segments([output.segment], [segment], clock.time_ms())
        finished = True
    finally:
        if not finished:
            output.discard()
    return erased


def _condemned(
    batch: bytes, header: BatchHeader, topic: str, ends: dict[str, Offset], pace: Pace
) -> Generator[None, None, set[int]]:
    """The starts of the records in the payload that lose their value."""
    found: set[int] = set()
    if header.is_control or not header.record_count:
        return found
    payload = bytes(batch_payload(batch, 0, header))
    for spans in steps_of_spans(payload, header):
        for start, _, delta, _, key_start, key_end, is_null in spans:
            if key_start < 0 or is_null:
                continue
            if header.base_offset + delta < ends.get(key_hash(topic, payload[key_start:key_end]), 0):
                found.add(start)
        if pace.used_up():
            yield None
            pace.restart()
    return found


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
