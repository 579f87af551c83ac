"""A truncation and a disk that loses power, is full or has no descriptors: the log is cut wholly, or not used at all."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.env.config import TopicConfig
from ottla.log.checkpoints import read_offsets
from ottla.log.log_store import LogStore
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskFile, DiskStorage

from .partition_files import NOW, append, read_all

A0 = TopicPartition("a", 0)
TOPIC_ID = Uuid(b"0123456789abcdef")
CONFIG = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=400, index_interval_bytes=100)


class RefusingStorage(DiskStorage):
    """A disk that refuses everything from its N-th change on (None: never). Without descriptors nothing is opened."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.errno = errno.ENOSPC

    def change(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise OSError(self.errno, "injected")

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create or self.errno == errno.EMFILE:
            self.change()
        return super().open(path, create=create)

    def read_bytes(self, path: str) -> bytes:
        if self.errno == errno.EMFILE:
            self.change()
        return super().read_bytes(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.change()
        super().write_atomic(path, data)

    def rename(self, source: str, target: str) -> None:
        if self.errno == errno.ENOSPC:
            self.change()
        super().rename(source, target)


def opened(path: Path, storage: DiskStorage) -> LogStore:
    store = LogStore(storage, SystemRandom(), [str(path)])
    store.open_directories()
    store.load(lambda _topic: CONFIG, NOW)
    return store


def reopened(path: Path) -> PartitionLog:
    """After a crash: nothing of the old process was written out."""
    log = opened(path, DiskStorage()).get(A0)
    assert log is not None
    return log


def filled(store: LogStore, count: int = 20) -> PartitionLog:
    """Synced and checkpointed, in several segments and leader epochs, with a producer."""
    log = store.create(A0, TOPIC_ID, CONFIG, NOW)
    for number in range(count):
        append(log, b"old %d" % number, leader_epoch=number // 3, producer_id=1, epoch=0, sequence=number)
    log.flush(NOW)
    store.checkpoint_recovery_points()
    return log


def test_a_hole_below_the_old_recovery_point_is_found(tmp_path: Path) -> None:
    store = opened(tmp_path, DiskStorage())
    log = filled(store)
    assert log.recovery_point == 20
    log.truncate_to(10, NOW)
    cut = log.active_segment
    size = cut.size
    for number in range(10, 30):
        append(log, b"new %d" % number, leader_epoch=9)
    assert log.active_segment is not cut
    store.abandon()
    # The power goes: the first new batches are lost, a later segment happens to be on disk.
    with Path(cut.path(".log")).open("r+b") as file:
        file.truncate(size)
    again = reopened(tmp_path)
    assert again.log_end_offset == 10
    assert [offset for offset, _ in read_all(again)] == list(range(10))


@pytest.mark.parametrize("start_over", [False, True])
def test_the_lower_recovery_point_is_on_disk_before_anything_is_cut(tmp_path: Path, start_over: bool) -> None:
    class Disk(DiskStorage):
        def rename(self, source: str, target: str) -> None:
            if target.endswith(".log.deleted"):
                points.append(read_offsets(DiskStorage(), f"{tmp_path}/recovery-point-offset-checkpoint")[A0])
            super().rename(source, target)

    points: list[int] = []
    store = opened(tmp_path, Disk())
    log = filled(store)
    if start_over:
        log.truncate_fully_and_start_at(7, NOW)
    else:
        log.truncate_to(7, NOW)
    assert points
    assert set(points) == {7}
    store.abandon()


def is_refused(call: Callable[..., object], *arguments: object, **options: object) -> bool:
    try:
        call(*arguments, **options)
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("kind", ["cut", "start over", "start over at a segment"])
def test_a_truncation_that_is_refused_at_any_step(tmp_path: Path, kind: str, code: int, crash: bool) -> None:
    for step in range(60):
        path = tmp_path / str(step)
        storage = RefusingStorage()
        store = opened(path, storage)
        log = filled(store, 10)
        before = read_all(log)
        log.forget()
        offset = 4 if kind != "start over at a segment" else log.segments[1].base_offset
        truncate = log.truncate_to if kind == "cut" else log.truncate_fully_and_start_at
        storage.errno, storage.left = code, step
        refused = is_refused(truncate, offset, NOW)
        if refused:
            # Nothing is appended to a log that is cut in part.
            assert is_refused(append, log, b"too early", leader_epoch=8)
            assert log.log_end_offset in (10, offset)
        storage.left = None
        assert not log.log_dir.offline
        if crash and refused:
            store.abandon()
            again = reopened(path)
            assert read_all(again) == before[again.log_start_offset : again.log_end_offset]
            continue
        if refused:
            truncate(offset, NOW)
        assert read_all(log) == (before[:offset] if kind == "cut" else [])
        assert append(log, b"new", leader_epoch=8, producer_id=2, epoch=0, sequence=0) == offset
        assert read_all(log)[-1] == (offset, b"new")
        producers = {producer.producer_id: producer.last_sequence for producer in log.producers.active()}
        assert producers == ({1: offset - 1, 2: 0} if kind == "cut" else {2: 0})
        read, epochs = read_all(log), log.epochs.entries
        assert epochs[-1] == (8, offset)
        store.shutdown(NOW)
        again = reopened(path)
        assert read_all(again) == read
        assert again.epochs.entries == epochs
        if not refused:
            return
    raise AssertionError("the truncation never ends")


def test_an_interrupted_truncation_is_finished_by_a_read(tmp_path: Path) -> None:
    storage = RefusingStorage()
    store = opened(tmp_path, storage)
    log = filled(store)
    storage.errno, storage.left = errno.ENOSPC, 3
    with pytest.raises(KafkaError):
        log.truncate_to(8, NOW)
    assert (log.log_end_offset, log.high_watermark) == (8, 8)
    with pytest.raises(KafkaError):
        log.read(0, 1000)
    storage.left = None
    assert [offset for offset, _ in read_all(log)] == list(range(8))
    store.shutdown(NOW)


def test_a_directory_with_an_interrupted_truncation_is_not_called_clean(tmp_path: Path) -> None:
    storage = RefusingStorage()
    store = opened(tmp_path, storage)
    log = filled(store)
    storage.errno, storage.left = errno.ENOSPC, 3
    with pytest.raises(KafkaError):
        log.truncate_to(8, NOW)
    store.shutdown(NOW)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
