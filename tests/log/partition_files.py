"""What the tests of the log share: batches, logs on a real disk, and a disk that fails on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from typing_extensions import Buffer

from ottla.env.config import TopicConfig
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import create_partition_log, load_partition_log
from ottla.model.ids import TopicPartition
from ottla.protocol.records import SimpleRecord, build_batch, iterate_records
from ottla.protocol.records_header import iterate_batches
from ottla.runtime.disk import DiskFile, DiskStorage

PARTITION = TopicPartition("orders", 0)
NOW = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamp: int = NOW,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: int = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    return build_batch(
        [SimpleRecord(timestamp + index, b"key", value) for index, value in enumerate(values or (b"value",))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=bool(transactional),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def new_log(path: Path, config: TopicConfig | None = None, storage: DiskStorage | None = None) -> PartitionLog:
    log_dir = LogDirectory(storage or DiskStorage(), str(path))
    return create_partition_log(log_dir, f"{path}/{PARTITION}", PARTITION, config or TopicConfig(), now_ms=NOW)


def reload(
    log: PartitionLog, *, clean: bool, recovery_point: int = 0, storage: DiskStorage | None = None
) -> PartitionLog:
    """The log as a new process finds it. Without `clean`, nothing of the old object was written out."""
    return load_partition_log(
        LogDirectory(storage or DiskStorage(), log.log_dir.path),
        log.directory,
        PARTITION,
        log.config,
        now_ms=NOW,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log.log_start_offset,
    )


def append(log: PartitionLog, *values: bytes, leader_epoch: int = 0, now_ms: int = NOW, **facts: int) -> int:
    """Append one batch; returns its first offset."""
    result = log.append_as_leader(batch(*values, **facts), leader_epoch=leader_epoch, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return result.first_offset


def values(data: Buffer) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record in a run of batches."""
    return [
        (record.offset, record.value)
        for position, _ in iterate_batches(data)
        for record in iterate_records(data, position)
    ]


def read_all(log: PartitionLog, start: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Every record from `start` (the log start by default), as a consumer reads: piece after piece."""
    offset = log.log_start_offset if start is None else start
    wanted = offset
    found: list[tuple[int, bytes | None]] = []
    while True:
        piece = values(log.read(offset, max_bytes).read())
        if not piece:
            return [pair for pair in found if pair[0] >= wanted]
        found += piece
        offset = piece[-1][0] + 1


def names(log: PartitionLog, *suffixes: str) -> list[str]:
    """The files in the partition's folder, those with the suffixes if any are given."""
    return sorted(path.name for path in Path(log.directory).iterdir() if not suffixes or path.name.endswith(suffixes))


class FailingFile(DiskFile):
    __slots__ = ("_storage",)

    def __init__(self, file: DiskFile, storage: FailingStorage) -> None:
        super().__init__(file.path, file.fileno())
        file._fd = -1  # the descriptor is this object's now, to close once
        self._storage = storage

    def pwrite(self, data: Buffer, position: int) -> None:
        failure = self._storage.failure
        if failure is not None and failure(self.path):
            view = memoryview(data)
            super().pwrite(view[: len(view) // 2], position)
            raise OSError(self._storage.errno, "injected")
        super().pwrite(data, position)

    def sync(self) -> None:
        if self._storage.failing_sync:
            raise OSError(errno.EIO, "injected")
        super().sync()


class FailingStorage(DiskStorage):
    """A real disk on which writes to chosen paths stop half-way."""

    __slots__ = ("errno", "failing_sync", "failure")

    def __init__(self) -> None:
        self.failure: Callable[[str], bool] | None = None
        self.errno = errno.ENOSPC
        self.failing_sync = False

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return FailingFile(super().open(path, create=create), self)
