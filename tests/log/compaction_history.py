"""What the tests of compaction share: a clock in the hand, histories of writes, and how a consumer sees a log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import Buffer

from ottla.env.config import TopicConfig
from ottla.log.cleaner import Cleaner
from ottla.log.compaction import CleanerStats
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import AppendOrigin
from ottla.protocol.records import (
    BatchHeader,
    Record,
    SimpleRecord,
    build_batch,
    build_end_txn_marker,
    iterate_batches,
    iterate_records,
)
from ottla.runtime.disk import DiskFile, DiskStorage

from .partition_files import NOW, new_log

DAY = 86_400_000
COMPACT = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=100,
    delete_retention_ms=DAY,
)


class HandClock:
    """Wall time moves only by hand; monotonic time moves with every look, so that slices end."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self.looks = 0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        self.looks += 1
        return self.looks * 0.4


class OneLog:
    """The cleaner's view of a node with one partition."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def online_logs(self) -> Iterator[PartitionLog]:
        yield self.log


class History:
    """Writes to a log, and remembers what it wrote."""

    def __init__(self, path: Path, config: TopicConfig = COMPACT, storage: DiskStorage | None = None) -> None:
        self.clock = HandClock()
        self.log = new_log(path, config, storage)
        self.written: dict[int, tuple[bytes | None, bytes | None, int]] = {}
        self.sequences: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}
        """Producer -> the offsets of its open transaction."""

    def append(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        codec: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """One batch; returns its first offset."""
        sequence = self.sequences.get(producer_id, 0)
        records = [
            SimpleRecord(self.clock.now_ms + i, key, value, tuple(headers)) for i, (key, value) in enumerate(pairs)
        ]
        data = build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs)
        first = self.log.append_as_leader(data, leader_epoch=0, now_ms=self.clock.now_ms).first_offset
        self.log.advance_high_watermark(self.log.log_end_offset)
        for i, record in enumerate(records):
            self.written[first + i] = (record.key, record.value, record.timestamp)
        if transactional:
            self.open.setdefault(producer_id, []).extend(range(first, first + len(pairs)))
        return first

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = build_end_txn_marker(
            commit=commit,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self.log.append_as_leader(marker, leader_epoch=0, now_ms=self.clock.now_ms, origin=AppendOrigin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)
        offsets = self.open.pop(producer_id, [])
        if not commit:
            self.aborted.update(offsets)

    def roll(self) -> None:
        if self.log.active_segment.size:
            self.log.roll(self.clock.now_ms)

    def cleaner(self, **settings: float) -> Cleaner:
        return Cleaner(OneLog(self.log), self.clock, **settings)  # type: ignore[arg-type]

    def compact(self, cleaner: Cleaner | None = None) -> CleanerStats | None:
        return finished((cleaner or self.cleaner()).clean_next())

    @property
    def live(self) -> dict[bytes, bytes]:
        """The table of what was written and not aborted: the highest offset of a key wins, whoever committed first."""
        left_out = self.aborted.union(*self.open.values())
        return latest(
            [
                Record(offset, time, key, value)
                for offset, (key, value, time) in self.written.items()
                if offset not in left_out
            ]
        )


def finished(steps: Iterator[object]) -> CleanerStats | None:
    """Drive a generator of the cleaner to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def read_batches(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch from the log start, read as a consumer does."""
    offset = log.log_start_offset
    found: list[tuple[BatchHeader, list[Record]]] = []
    while offset < log.log_end_offset:
        data = log.read(offset, 500).read()
        if not data:
            break
        for position, header in iterate_batches(data):
            found.append((header, list(iterate_records(data, position))))
            offset = header.next_offset
    return found


def read_records(log: PartitionLog, *, committed: bool = False) -> list[Record]:
    """The records of data batches; with `committed` without those of aborted or open transactions."""
    aborted = sorted(log.aborted.between(log.log_start_offset, log.log_end_offset), key=lambda t: t.first_offset)
    upper = log.last_stable_offset if committed else log.log_end_offset
    ongoing: set[int] = set()
    found: list[Record] = []
    for header, records in read_batches(log):
        while aborted and aborted[0].first_offset <= header.last_offset:
            ongoing.add(aborted.pop(0).producer_id)
        if header.is_control:
            if records and records[0].key == bytes(4):
                ongoing.discard(header.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in ongoing):
            found += [record for record in records if record.offset < upper]
    return found


def latest(records: Sequence[Record]) -> dict[bytes, bytes]:
    """What a table built from the records holds."""
    table: dict[bytes, bytes | None] = {}
    for record in records:
        if record.key is not None:
            table[record.key] = record.value
    return {key: value for key, value in table.items() if value is not None}


class Crash(BaseException):
    """The machine stops: no handler runs, nothing after it reaches the disk."""


class CrashingStorage(DiskStorage):
    """A disk that stops at its N-th change (-1: never); what was written and not synced is then half lost.

    Syncs are only noted: a crash of this machine is not part of the test, and they would take most of its time.
    """

    __slots__ = ("countdown", "unsynced")

    def __init__(self) -> None:
        self.countdown = -1
        self.unsynced: set[str] = set()

    def change(self) -> None:
        if self.countdown == 0:
            raise Crash
        if self.countdown > 0:
            self.countdown -= 1

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not Path(path).exists():
            self.change()
        return CrashingFile(super().open(path, create=create), self)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.change()
        temporary = Path(path + ".tmp")
        temporary.write_bytes(data)
        temporary.replace(path)

    def rename(self, source: str, target: str) -> None:
        self.change()
        super().rename(source, target)
        if source in self.unsynced:
            self.unsynced.discard(source)
            self.unsynced.add(target)

    def remove(self, path: str) -> None:
        self.change()
        super().remove(path)
        self.unsynced.discard(path)

    def sync_dir(self, path: str) -> None:
        self.change()

    def lose_unsynced(self) -> None:
        for path in self.unsynced:
            if Path(path).exists():
                os.truncate(path, Path(path).stat().st_size // 2)


class CrashingFile(DiskFile):
    __slots__ = ("_storage",)

    def __init__(self, file: DiskFile, storage: CrashingStorage) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        file.close()
        self._storage = storage

    def pwrite(self, data: Buffer, position: int) -> None:
        self._storage.unsynced.add(self.path)
        try:
            self._storage.change()
        except Crash:
            view = memoryview(data)
            super().pwrite(view[: len(view) // 2], position)
            raise
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._storage.change()
        super().truncate(size)

    def sync(self) -> None:
        self._storage.change()
        self._storage.unsynced.discard(self.path)
