"""A node's log directories: locking, loading, creating, deleting, moving, failing, stopping."""

from __future__ import annotations

import errno
import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.log.removed import carried_out

from ottla.env import logging
from ottla.env.config import TopicConfig
from ottla.log.checkpoints import read_offsets
from ottla.log.log_directory import LogDirectory
from ottla.log.log_store import LogStore
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage

from .partition_files import NOW, FailingStorage, append, read_all

TOPIC_ID = Uuid(b"0123456789abcdef")
CONFIG = TopicConfig()
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c.d", 0)


def opened(paths: Iterable[Path], storage: DiskStorage | None = None) -> LogStore:
    store = LogStore(storage or DiskStorage(), SystemRandom(), [str(path) for path in paths])
    store.open_directories()
    store.load(lambda _topic: CONFIG, NOW)
    return store


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "one", tmp_path / "two"]


def test_create_spreads_and_restart_finds_everything(dirs: list[Path]) -> None:
    store = opened(dirs)
    for partition in (A0, A1, B0):
        log = store.create(partition, TOPIC_ID, CONFIG, NOW)
        append(log, str(partition).encode(), leader_epoch=2)
    assert sorted(len(list(path.glob("*-*/"))) for path in dirs) == [1, 2]
    store.shutdown(NOW, broker_epoch=17)
    for path in dirs:
        assert (path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":17}'
        assert (path / "recovery-point-offset-checkpoint").read_text().startswith("0\n")
    again = opened(dirs)
    assert again.previous_broker_epoch == 17
    assert set(again.logs()) == {A0, A1, B0}
    assert not any((path / ".kafka_cleanshutdown").exists() for path in dirs)
    for partition in (A0, A1, B0):
        found = again.get(partition)
        assert found is not None
        assert (found.topic_id, found.high_watermark, found.recovery_point) == (TOPIC_ID, 1, 1)
        assert read_all(found) == [(0, str(partition).encode())]
    again.shutdown(NOW)


def test_a_crash_is_noticed(dirs: list[Path]) -> None:
    store = opened(dirs)
    append(store.create(A0, TOPIC_ID, CONFIG, NOW), b"x")
    store._release_locks()
    again = opened(dirs)
    assert again.previous_broker_epoch == -1
    log = again.get(A0)
    assert log is not None
    assert (log.log_end_offset, log.recovery_point) == (1, 0)
    again.shutdown(NOW)


def test_a_second_server_is_refused(dirs: list[Path], tmp_path: Path) -> None:
    store = opened(dirs)
    script = (
        "import sys; from ottla.log.log_store import *; from ottla.runtime.disk import DiskStorage;"
        "from ottla.runtime.clock import SystemRandom\n"
        "try: LogStore(DiskStorage(), SystemRandom(), sys.argv[1:]).open_directories()\n"
        "except LogDirectoryError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, dirs)], capture_output=True, text=True, timeout=30, check=True
    )
    assert "another server" in done.stdout
    store.shutdown(NOW)
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, dirs)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""


def test_directories_are_told_who_they_are(dirs: list[Path]) -> None:
    store = LogStore(DiskStorage(), SystemRandom(), [str(path) for path in dirs])
    store.open_directories({str(dirs[0]): TOPIC_ID})
    assert [directory.directory_id for directory in store.directories] == [TOPIC_ID, ZERO_UUID]
    store.abandon()


def test_delete_waits_then_removes(dirs: list[Path]) -> None:
    store = opened(dirs[:1])
    log = store.create(B0, TOPIC_ID, CONFIG, NOW)
    append(log, b"x")
    store.delete(B0, NOW)
    assert store.get(B0) is None
    (folder,) = dirs[0].glob("*-delete")
    assert folder.name.startswith("b-c.d-0.")
    assert len(folder.name) == len("b-c.d-0.") + 32 + len("-delete")
    assert carried_out(store.removals(NOW + 59_999)) == 0
    assert carried_out(store.removals(NOW + 60_000)) == 1
    assert not folder.exists()
    append(store.create(B0, TOPIC_ID, CONFIG, NOW), b"again")
    store.delete(B0, NOW)
    store.shutdown(NOW)
    again = opened(dirs[:1])
    assert again.logs() == {}
    carried_out(again.removals(NOW + 60_000))
    assert list(dirs[0].glob("*-delete")) == []
    again.shutdown(NOW)


def test_delete_with_index_entries_in_memory(dirs: list[Path]) -> None:
    """Found by the benchmark: the entries were written to the old name after the rename, and the directory failed."""
    store = opened(dirs[:1])
    log = store.create(B0, TOPIC_ID, CONFIG, NOW)
    for _ in range(4):
        append(log, b"x" * 5000)
    store.delete(B0, NOW)
    assert store.online_directories() == store.directories
    assert next(iter(dirs[0].glob("*-delete/*.index"))).stat().st_size > 0
    store.shutdown(NOW)


def test_a_sync_under_way_does_not_mind_the_deletion(dirs: list[Path]) -> None:
    """The sync runs in a thread; the partition may go while it does. That is no failure of the disk."""
    store = opened(dirs[:1])
    log = store.create(A0, TOPIC_ID, CONFIG, NOW)
    append(log, b"x")
    log.roll(NOW)
    plan = log.prepare_flush()
    assert plan is not None
    store.delete(A0, NOW)
    carried_out(store.removals(NOW + 10**9))
    plan.sync()
    log.flushed(plan, NOW)
    store.shutdown(NOW)


def test_long_topic_names_fit_the_file_system(dirs: list[Path]) -> None:
    store = opened(dirs[:1])
    partition = TopicPartition("t" * 249, 12)
    store.create(partition, TOPIC_ID, CONFIG, NOW)
    store.delete(partition, NOW)
    assert all(len(path.name) <= 255 for path in dirs[0].iterdir())
    store.shutdown(NOW)


def test_stray_metadata_and_foreign_folders_are_left_alone(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    stray = "a-0.0123456789abcdef0123456789abcdef-stray"
    said = io.StringIO()
    monkeypatch.setattr(logging, "_sink", logging._sink)
    logging.configure(said, level="warning")
    for name in ("__cluster_metadata-0", "lost+found", stray, "nodash"):
        (dirs[0] / name).mkdir(parents=True)
    (dirs[0] / "file-0").write_text("a file")
    store = opened(dirs[:1])
    assert store.logs() == {}
    log = store.create(A1, TOPIC_ID, CONFIG, NOW)
    append(log, b"x")
    assert f"log.set_aside directory={dirs[0] / stray}" in said.getvalue()
    store.mark_stray(A1, NOW)
    [folder] = dirs[0].glob("a-1.*-stray")
    assert f"log.set_aside directory={folder}" in said.getvalue()
    assert carried_out(store.removals(NOW + 10**9)) == 0
    store.shutdown(NOW)


def test_of_the_same_partition_twice_the_longer_log_serves(dirs: list[Path]) -> None:
    """A kill between the renames of a promotion, and then more records: see `test_moves`."""
    store = opened(dirs)
    append(store.create(A0, TOPIC_ID, CONFIG, NOW, directory=str(dirs[0])), b"x")
    store.shutdown(NOW)
    shutil.copytree(dirs[0] / "a-0", dirs[1] / "a-0")
    store = opened(dirs[1:])
    moved = store.get(A0)
    assert moved is not None
    append(moved, b"y")
    store.shutdown(NOW)
    again = opened(dirs)
    log = again.get(A0)
    assert log is not None
    assert log.directory == f"{dirs[1]}/a-0"
    assert len(again.online_directories()) == 2
    carried_out(again.removals(NOW + 10**9))
    assert list(dirs[0].glob("a-0*")) == []
    again.shutdown(NOW)


def test_a_failing_directory_goes_offline_and_the_rest_goes_on(dirs: list[Path]) -> None:
    storage = FailingStorage()
    storage.errno = errno.EIO
    told: list[tuple[str, list[TopicPartition]]] = []

    def on_failed(log_dir: LogDirectory, partitions: list[TopicPartition]) -> None:
        told.append((log_dir.path, partitions))

    store = LogStore(storage, SystemRandom(), [str(path) for path in dirs], on_directory_failed=on_failed)
    store.open_directories()
    store.load(lambda _topic: CONFIG, NOW)
    bad = store.create(A0, TOPIC_ID, CONFIG, NOW, directory=str(dirs[0]))
    good = store.create(A1, TOPIC_ID, CONFIG, NOW, directory=str(dirs[1]))
    storage.failure = lambda path: path.startswith(str(dirs[0]))
    with pytest.raises(KafkaError):
        append(bad, b"x")
    assert told == [(str(dirs[0]), [A0])]
    append(good, b"y")
    assert store.create(B0, TOPIC_ID, CONFIG, NOW).log_dir.path == str(dirs[1])
    descriptions = store.describe()
    assert [description.error for description in descriptions] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert {replica.partition for replica in descriptions[1].replicas} == {A1, B0}
    with pytest.raises(KafkaError) as refused:
        store.create(TopicPartition("c", 0), TOPIC_ID, CONFIG, NOW, directory=str(dirs[0]))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    sum(store.delete_old_segments(NOW))
    store.checkpoint_recovery_points()
    store.shutdown(NOW)
    assert not (dirs[0] / ".kafka_cleanshutdown").exists()
    assert (dirs[1] / ".kafka_cleanshutdown").exists()


def test_an_unreadable_directory_does_not_stop_the_start(dirs: list[Path]) -> None:
    dirs[0].parent.mkdir(exist_ok=True)
    dirs[0].write_text("not a directory")
    store = opened(dirs)
    assert [log_dir.offline for log_dir in store.directories] == [True, False]
    store.create(A0, TOPIC_ID, CONFIG, NOW)
    store.shutdown(NOW)


def test_checkpoints_hold_what_names_do_not_tell(dirs: list[Path]) -> None:
    store = opened(dirs[:1])
    for partition in (A0, A1):
        log = store.create(partition, TOPIC_ID, CONFIG, NOW)
        for _ in range(5):
            append(log, b"x")
    first = store.get(A0)
    assert first is not None
    first.advance_log_start_offset(3)
    store.checkpoint_log_start_offsets()
    store.checkpoint_high_watermarks()
    assert read_offsets(DiskStorage(), f"{dirs[0]}/log-start-offset-checkpoint") == {A0: 3}
    assert read_offsets(DiskStorage(), f"{dirs[0]}/replication-offset-checkpoint") == {A0: 5, A1: 5}
    store._release_locks()
    again = opened(dirs[:1])
    found = again.get(A0)
    assert found is not None
    assert (found.log_start_offset, found.high_watermark) == (3, 5)
    again.shutdown(NOW)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_damaged_checkpoints_are_as_good_as_none(dirs: list[Path], name: str) -> None:
    store = opened(dirs[:1])
    append(store.create(A0, TOPIC_ID, CONFIG, NOW), b"x")
    store._release_locks()
    (dirs[0] / name).write_text("0\n2\na 0 9\n")
    log = opened(dirs[:1]).get(A0)
    assert log is not None
    assert log.log_end_offset == 1


class TestMoving:
    def test_copy_swap_and_restart(self, dirs: list[Path]) -> None:
        store = opened(dirs)
        log = store.create(A0, TOPIC_ID, CONFIG, NOW, directory=str(dirs[0]))
        for number in range(50):
            append(log, b"%d" % number, producer_id=1, epoch=0, sequence=number, leader_epoch=number // 20)
        log.advance_log_start_offset(7)
        expected = read_all(log)
        store.create_future(A0, str(dirs[1]), NOW)
        assert not store.moves.copy(A0, 500, NOW)
        store.shutdown(NOW)
        store = opened(dirs)
        assert store.moves.future(A0) is not None
        with pytest.raises(ValueError, match="not caught up"):
            store.moves.promote(A0, NOW)
        while not store.moves.copy(A0, 500, NOW):
            pass
        moved = store.moves.promote(A0, NOW)
        assert moved.log_dir.path == str(dirs[1])
        assert store.get(A0) is moved
        assert moved.directory == f"{dirs[1]}/a-0"
        assert read_all(moved) == expected
        assert moved.log_start_offset == 7
        append(moved, b"more", producer_id=1, epoch=0, sequence=50, leader_epoch=3)
        assert [epoch for epoch, _ in moved.epochs.entries] == [0, 1, 2, 3]
        carried_out(store.removals(NOW + 10**9))
        assert list(dirs[0].glob("a-0*")) == []
        store.shutdown(NOW)
        again = opened(dirs).get(A0)
        assert again is not None
        assert again.log_end_offset == 51

    def test_unknown_directory(self, dirs: list[Path]) -> None:
        store = opened(dirs)
        store.create(A0, TOPIC_ID, CONFIG, NOW)
        with pytest.raises(KafkaError) as refused:
            store.create_future(A0, "/elsewhere", NOW)
        assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
        store.shutdown(NOW)

    def test_abandon(self, dirs: list[Path]) -> None:
        store = opened(dirs)
        store.create(A0, TOPIC_ID, CONFIG, NOW, directory=str(dirs[0]))
        store.create_future(A0, str(dirs[1]), NOW)
        assert [replica.is_future for replica in store.describe()[1].replicas] == [True]
        store.delete(A0, NOW)
        carried_out(store.removals(NOW + 10**9))
        assert [folder for path in dirs for folder in path.glob("a-0*")] == []
        store.shutdown(NOW)


def test_shutdown_can_sync_elsewhere(dirs: list[Path]) -> None:
    store = opened(dirs)
    append(store.create(A0, TOPIC_ID, CONFIG, NOW), b"x")
    ran = []

    def run_all(calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            call()
            ran.append(call)

    store.shutdown(NOW, run_all=run_all)
    assert len(ran) == 1
    assert read_offsets(DiskStorage(), f"{dirs[0]}/recovery-point-offset-checkpoint") == {A0: 1}


def test_a_duty_that_gives_way_leaves_out_logs_that_are_gone(dirs: list[Path]) -> None:
    store = opened(dirs)
    for partition in (A0, A1, B0):
        store.create(partition, TOPIC_ID, CONFIG, NOW)
    logs = store.online_logs()
    assert next(logs).topic_partition == A0
    store.delete(A1, NOW)
    again = store.create(A1, Uuid(b"n" * 16), CONFIG, NOW)
    assert [log.topic_partition for log in logs] == [B0]
    assert store.get(A1) is again
