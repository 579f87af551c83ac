"""`leader-epoch-checkpoint` and the batches: whatever a full disk or a crash does to the file, a start agrees with the log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.log.checkpoints import CorruptCheckpointError, read_offsets
from ottla.log.epoch_cache import EpochCache
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition
from ottla.runtime.disk import DiskFile, DiskStorage

from .partition_files import NOW, FailingStorage, append, batch, new_log, reload

FILE = "leader-epoch-checkpoint"


def file_of(log: PartitionLog) -> Path:
    return Path(log.directory, FILE)


def fails_on_epochs(storage: FailingStorage) -> None:
    storage.failure = lambda path: FILE in path


def restarted(log: PartitionLog) -> PartitionLog:
    log.close()
    return reload(log, clean=True)


def test_the_first_append_of_an_epoch_on_a_full_disk(tmp_path: Path) -> None:
    """The leader must not know an epoch that its file does not: after a restart it would tell an in-sync follower to cut
    below the high watermark."""
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    for _ in range(5):
        append(log, b"x", leader_epoch=1)
    fails_on_epochs(storage)
    with pytest.raises(KafkaError):
        append(log, b"refused", leader_epoch=2)
    assert log.epochs.entries == [(1, 0)]
    storage.failure = None
    for _ in range(5):
        append(log, b"y", leader_epoch=2)
    assert log.epochs.entries == [(1, 0), (2, 5)]
    again = restarted(log)
    assert again.epochs.entries == [(1, 0), (2, 5)]
    assert again.end_offset_for_epoch(2) == (2, 10)


def test_the_first_fetch_of_an_epoch_on_a_full_disk(tmp_path: Path) -> None:
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    append(log, b"x", leader_epoch=1)
    fetched = batch(b"y", base_offset=1, leader_epoch=2)
    fails_on_epochs(storage)
    with pytest.raises(KafkaError):
        log.append_as_follower(fetched, now_ms=NOW)
    storage.failure = lambda path: path.endswith(".log")
    with pytest.raises(KafkaError):
        log.append_as_follower(fetched, now_ms=NOW)
    storage.failure = None
    assert log.epochs.entries == [(1, 0)]
    log.append_as_follower(batch(b"y", base_offset=1, leader_epoch=1), now_ms=NOW)
    assert restarted(log).epochs.entries == [(1, 0)]


def test_a_truncation_whose_epochs_could_not_be_written(tmp_path: Path) -> None:
    """The leader that this replica follows now wrote more of epoch 1, and epoch 3: nobody rewrites the file by chance."""
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    append(log, b"x", leader_epoch=1)
    append(log, b"lost", leader_epoch=2)
    fails_on_epochs(storage)
    with pytest.raises(KafkaError):
        log.truncate_to(1, NOW)
    storage.failure = None
    log.append_as_follower(batch(b"y", base_offset=1, leader_epoch=1), now_ms=NOW)
    assert file_of(log).read_text() == "0\n1\n1 0\n"
    assert restarted(log).epochs.entries == [(1, 0)]


def test_a_full_disk_does_not_stop_what_makes_room(tmp_path: Path) -> None:
    storage = FailingStorage()
    log = new_log(tmp_path, storage=storage)
    for epoch in range(3):
        append(log, b"x", leader_epoch=epoch)
    fails_on_epochs(storage)
    assert log.advance_log_start_offset(2)
    storage.failure = None
    log.flush(NOW)
    assert file_of(log).read_text() == "0\n1\n2 2\n"


class NoDescriptors(DiskStorage):
    """A disk whose `.log` files cannot be opened when told; notes what is opened."""

    __slots__ = ("exhausted", "opened")

    def __init__(self) -> None:
        self.exhausted = False
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if self.exhausted and path.endswith(".log"):
            raise OSError(errno.EMFILE, "injected", path)
        self.opened.append(path)
        return super().open(path, create=create)


def test_a_flush_that_could_not_be_planned_leaves_the_file_to_the_next(tmp_path: Path) -> None:
    """The recovery point must not pass batches whose epoch is not on disk: nobody would read them again."""
    storage = NoDescriptors()
    log = new_log(tmp_path, storage=storage)
    append(log, b"x", leader_epoch=1)
    log.flush(NOW)
    append(log, b"y", leader_epoch=2)
    log.forget()
    storage.exhausted = True
    with pytest.raises(KafkaError):
        log.flush(NOW)
    storage.exhausted = False
    storage.opened.clear()
    log.flush(NOW)
    assert log.recovery_point == 2
    assert str(file_of(log)) in storage.opened


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    "content",
    [b"", None, b"0\n2\n1 0\n2 1", b"0\n2\n1 0\n2 ", b"0\n2\n1 0\n", b"0\n1\n1 0\n2 1\n", b"\0" * 16],
    ids=["empty", "missing", "torn number", "no number", "a line lost", "a line more", "zeros"],
)
def test_a_file_that_is_not_whole_is_made_again(tmp_path: Path, content: bytes | None, clean: bool) -> None:
    log = new_log(tmp_path)
    for _ in range(15):
        append(log, b"x", leader_epoch=1)
    append(log, b"y", leader_epoch=2)
    assert file_of(log).read_text() == "0\n2\n1 0\n2 15\n"
    log.flush(NOW)
    log.close()
    if content is None:
        file_of(log).unlink()
    else:
        file_of(log).write_bytes(content)
    again = reload(log, clean=clean, recovery_point=16)
    assert again.epochs.entries == [(1, 0), (2, 15)]
    assert file_of(log).read_text() == "0\n2\n1 0\n2 15\n"


def test_an_empty_log_has_an_empty_file_or_none(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert reload(log, clean=True).epochs.entries == []
    file_of(log).write_bytes(b"")  # as Kafka creates it
    assert reload(log, clean=True).epochs.entries == []


def test_an_epoch_of_a_log_that_was_cut_does_not_come_back(tmp_path: Path) -> None:
    """The file was not synced since: after a crash it is that of before the truncation."""
    log = new_log(tmp_path)
    for _ in range(10):
        append(log, b"x", leader_epoch=4)
    append(log, b"lost", leader_epoch=5)
    before = file_of(log).read_bytes()
    log.truncate_to(10, NOW)
    for offset in range(10, 15):
        log.append_as_follower(batch(b"y", base_offset=offset, leader_epoch=4), now_ms=NOW)
    log.append_as_follower(batch(b"z", base_offset=15, leader_epoch=6), now_ms=NOW)
    file_of(log).write_bytes(before)
    again = reload(log, clean=False)
    assert again.epochs.entries == [(4, 0), (6, 15)]
    assert again.end_offset_for_epoch(4) == (4, 15)


def test_batches_correct_the_entries_that_they_contradict() -> None:
    def corrected(*batches: tuple[int, int]) -> list[tuple[int, int]]:
        cache = EpochCache(DiskStorage(), "", [(1, 0), (2, 10), (5, 20)])
        for epoch, offset in batches:
            cache.correct(epoch, offset)
        assert cache.latest_epoch == cache.entries[-1][0]
        return cache.entries

    assert corrected((1, 0), (2, 12), (5, 25)) == [(1, 0), (2, 10), (5, 20)], "compaction took the first batches"
    assert corrected((1, 10)) == [(1, 0), (5, 20)]
    assert corrected((1, 30)) == [(1, 0)]
    assert corrected((3, 15)) == [(1, 0), (2, 10), (3, 15), (5, 20)]
    assert corrected((6, 15)) == [(1, 0), (2, 10), (6, 15)]
    assert corrected((0, 0)) == [(0, 0), (2, 10), (5, 20)]


@pytest.mark.parametrize("content", [b"0\n1\na 0 18", b"0\n2\na 0 180\nb 1 1", b"0", b"0\n1", b"0\n0"])
def test_a_torn_last_line_is_not_believed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError):
        read_offsets(DiskStorage(), str(path))
    path.write_bytes(b"0\n1\na 0 180\n")
    assert read_offsets(DiskStorage(), str(path)) == {TopicPartition("a", 0): 180}
