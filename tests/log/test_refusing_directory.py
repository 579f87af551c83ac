"""One directory that refuses (full, or no descriptors) does not keep the work of the others waiting."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.log.removed import carried_out

from ottla.env.config import TopicConfig
from ottla.env.config.load import load
from ottla.log.checkpoints import read_offsets
from ottla.log.cleaner import Cleaner
from ottla.log.log_directory import LogDirectory
from ottla.log.log_store import LogDirectoryError, LogStore
from ottla.log.open_files import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.replication.replicas import Replicas
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskFile, DiskStorage
from ottla.server.housekeeping import Housekeeping

from .compaction_history import COMPACT, HandClock, finished
from .partition_files import NOW, append, batch, read_all

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
TOPIC_ID = Uuid(b"0123456789abcdef")
PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:2",
}
CONFIG = COMPACT.replace(flush_ms=1, retention_ms=1, file_delete_delay_ms=0)


class RefusingStorage(DiskStorage):
    """A disk on which some paths cannot be opened or written and, when told, not removed."""

    def __init__(self) -> None:
        self.refuses: Callable[[str], bool] = lambda _path: False
        self.errno = errno.ENOSPC
        self.removes = True

    def check(self, path: str) -> None:
        if self.refuses(path):
            raise OSError(self.errno, "injected", path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.check(path)
        return super().open(path, create=create)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check(path)
        super().write_atomic(path, data)

    def remove(self, path: str) -> None:
        if not self.removes:
            self.check(path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.check(path)
        super().remove_tree(path)


class Node:
    """Two directories with a log in each; the first refuses when told."""

    def __init__(self, path: Path, config: TopicConfig = CONFIG) -> None:
        self.storage = RefusingStorage()
        self.paths = [path / "full", path / "good"]
        self.store = LogStore(self.storage, SystemRandom(), [str(path) for path in self.paths])
        self.store.open_directories()
        self.store.load(lambda _topic: config, NOW)
        pairs = zip((A0, B0), self.paths, strict=True)
        self.full, self.good = [
            self.store.create(partition, TOPIC_ID, config, NOW, directory=str(path)) for partition, path in pairs
        ]

    def refuse(self, code: int) -> None:
        for log in (self.full, self.good):
            log.forget()
        self.storage.errno = code
        self.storage.refuses = lambda path: path.startswith(f"{self.paths[0]}/")

        self.storage.removes = False

    def relent(self) -> None:
        self.storage.removes = True
        self.storage.refuses = lambda _path: False

    def assert_online(self) -> None:
        assert [log_dir.offline for log_dir in self.store.directories] == [False, False]


@pytest.fixture(params=[errno.ENOSPC, errno.EMFILE, errno.ENFILE])
def code(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def write(log: PartitionLog, count: int = 4) -> None:
    for number in range(count):
        append(log, b"%d" % number)
    log.roll(NOW)


def test_compaction_goes_on_with_the_others(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path)
    write(node.full, 8)  # the larger dirty part: the cleaner's first choice
    write(node.good)
    node.good.offsets.cleaned_up_to = 1
    clock = HandClock()
    cleaner = Cleaner(node.store, clock)
    node.refuse(code)
    refusals = 0
    while node.good.offsets.cleaned_up_to < 4:
        try:
            finished(cleaner.clean_next())
        except KafkaError:
            refusals += 1
            assert refusals <= 1, "the cleaner has picked the same log again"
    node.assert_online()
    node.relent()
    assert finished(cleaner.clean_next()) is not None
    assert node.full.offsets.cleaned_up_to == 8


def housekeeping(store: LogStore) -> Housekeeping:
    clock = HandClock()
    replicas = Replicas(1, store, clock, lambda _topic: CONFIG)
    return Housekeeping(load(PROPERTIES), clock, store, replicas, Cleaner(store, clock), timers=SimpleNamespace())


def test_flush_ms_goes_on_with_the_others(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path)
    for log in (node.full, node.good):
        append(log, b"x")
        append(log, b"y", leader_epoch=1)
    keeper = housekeeping(node.store)
    node.refuse(code)
    asyncio.run(keeper._flush_due())
    assert (node.full.recovery_point, node.good.recovery_point) == (0, 2)
    write(node.good, 1)
    asyncio.run(keeper._flush_rolled())
    assert node.good.recovery_point == 3
    node.assert_online()
    node.relent()
    asyncio.run(keeper._flush_due())
    assert node.full.recovery_point == 2


def test_a_sync_without_descriptors_is_made_again(tmp_path: Path) -> None:
    """The plan is made, and then there are none left: nothing was synced, and nothing is forgotten."""
    node = Node(tmp_path)
    log = node.full
    append(log, b"x", leader_epoch=3)
    plan = log.prepare_flush()
    assert plan is not None
    node.storage.errno, node.storage.refuses = errno.EMFILE, lambda path: "epoch" in path
    with pytest.raises(OSError, match="injected") as failed:
        plan.sync()
    assert log.flush_failed(failed.value).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    node.assert_online()
    synced: list[str] = []
    node.storage.refuses = lambda path: bool(synced.append(path))  # type: ignore[func-returns-value]
    log.flush(NOW)
    assert f"{log.directory}/leader-epoch-checkpoint" in synced
    assert log.recovery_point == 1


def test_retention_and_deletion_go_on_with_the_others(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path, CONFIG.replace(cleanup_policy=frozenset({"delete"})))
    for log in (node.full, node.good):
        write(log)
        append(log, b"kept")
    for log in (node.full, node.good):
        # After a restart nothing of the segment is in memory.
        log.segments[0]._max_timestamp = -2
        log.segments[0]._time_index = None
    node.refuse(code)
    sum(node.store.delete_old_segments(NOW + 1000))
    assert (len(node.full.segments), len(node.good.segments)) == (2, 1)
    node.store.checkpoint_recovery_points()
    node.store.checkpoint_log_start_offsets(sync=False)
    assert B0 in read_offsets(DiskStorage(), f"{node.paths[1]}/recovery-point-offset-checkpoint")
    node.relent()
    sum(node.store.delete_old_segments(NOW + 1000))
    node.store.delete(A0, NOW)
    node.store.delete(B0, NOW)
    node.refuse(code)
    carried_out(node.store.removals(NOW + 1000))
    assert [len(list(path.glob("*-delete"))) for path in node.paths] == [1, 0]
    node.assert_online()
    node.relent()
    carried_out(node.store.removals(NOW + 1000))
    assert [len(list(path.glob("*-delete"))) for path in node.paths] == [0, 0]


def test_a_deleted_segment_that_cannot_be_removed_now_is_removed_later(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path, CONFIG.replace(cleanup_policy=frozenset({"delete"})))
    write(node.full)
    sum(node.store.delete_old_segments(NOW + 1000))
    node.refuse(code)
    assert carried_out(node.store.removals(NOW + 1000)) == 0
    node.relent()
    assert carried_out(node.store.removals(NOW + 1000)) > 0
    assert not list(Path(node.full.directory).glob("*.deleted"))
    node.assert_online()


def test_a_deleted_topic_is_removed_outside_of_the_loop(tmp_path: Path) -> None:
    """To remove a segment of a gigabyte takes a tenth of a second; the heartbeats of the node are on the loop."""
    node = Node(tmp_path, CONFIG.replace(cleanup_policy=("delete",)))
    threads: set[int] = set()
    remove, remove_tree = node.storage.remove, node.storage.remove_tree
    write(node.full)
    sum(node.store.delete_old_segments(NOW + 10**9))
    node.store.delete(B0, NOW)

    def noted(call: Callable[[str], None]) -> Callable[[str], None]:
        def removed(path: str) -> None:
            threads.add(threading.get_ident())
            call(path)

        return removed

    node.storage.remove = noted(remove)  # type: ignore[method-assign]
    node.storage.remove_tree = noted(remove_tree)  # type: ignore[method-assign]
    keeper = housekeeping(node.store)
    keeper._clock.now_ms = NOW + 10**10  # type: ignore[attr-defined]
    asyncio.run(keeper._remove_files())
    assert threads
    assert threading.get_ident() not in threads
    assert not list(tmp_path.rglob("*.deleted"))
    assert not list(tmp_path.rglob("b-0*"))


def test_what_is_deleted_while_a_folder_is_being_removed_is_removed_later(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.store.delete(A0, NOW)
    removals = node.store.removals(NOW)
    under_way = next(removals)
    node.store.delete(B0, NOW)
    under_way()
    assert list(removals) == []
    assert carried_out(node.store.removals(NOW)) == 1
    assert not [path for directory in node.paths for path in directory.glob("*-delete")]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_an_append_without_descriptors_is_refused_before_it_is_written(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path)
    log = node.full
    append(log, b"first")
    shared = log.active_segment.shared_file()
    # As after a restart: nothing of the segment is in memory.
    log.active_segment.finish_indexes()
    log.active_segment._offset_index = log.active_segment._time_index = None
    log.active_segment._max_timestamp = -2
    node.storage.errno, node.storage.refuses = code, lambda path: "index" in path
    with pytest.raises(KafkaError) as refused:
        append(log, b"refused")
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    assert shared.file.size() == log.active_segment.size
    node.assert_online()
    node.relent()
    assert append(log, b"second") == 1
    assert read_all(log) == [(0, b"first"), (1, b"second")]


def test_a_log_that_cannot_be_created_leaves_nothing_behind(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path)
    late = TopicPartition("late", 0)
    for victim in (".index", ".timeindex", ".log", "partition.metadata"):
        node.storage.errno, node.storage.refuses = (
            code,
            lambda path, victim=victim: path.rstrip(".tmp").endswith(victim),
        )  # type: ignore[misc]
        with pytest.raises(KafkaError):
            node.store.create(late, TOPIC_ID, CONFIG, NOW, directory=str(node.paths[0]))
        node.relent()
        left = [str(path) for path in (node.paths[0] / "late-0").rglob("*") if path.is_file()]
        assert left == []
    node.assert_online()
    node.store.create(late, TOPIC_ID, CONFIG, NOW, directory=str(node.paths[0]))


def test_a_full_directory_keeps_no_topic_from_the_others(tmp_path: Path, code: int) -> None:
    """It has the fewest partitions, because it takes none."""
    node = Node(tmp_path)
    node.store.create(TopicPartition("b", 1), TOPIC_ID, CONFIG, NOW, directory=str(node.paths[1]))
    node.refuse(code)
    late = TopicPartition("late", 0)
    log = node.store.create(late, TOPIC_ID, CONFIG, NOW)
    assert log.log_dir.path == str(node.paths[1])
    assert append(log, b"x") == 0
    node.assert_online()
    node.storage.refuses = lambda _path: True
    with pytest.raises(KafkaError):
        node.store.create(TopicPartition("late", 1), TOPIC_ID, CONFIG, NOW)
    node.relent()
    assert node.store.create(TopicPartition("late", 1), TOPIC_ID, CONFIG, NOW).log_dir.path == str(node.paths[0])
    node.store.abandon()


def test_a_segment_that_cannot_be_created_leaves_nothing_behind(tmp_path: Path, code: int) -> None:
    """A small batch still fits into the old segment: an empty file at the offset of the roll would end the log there."""
    node = Node(tmp_path)
    log = node.full
    append(log, b"x")

    class Disk(DiskFile):
        def truncate(self, size: int) -> None:
            raise OSError(code, "injected")

    open_file = node.storage.open

    def opened(path: str, *, create: bool = False) -> DiskFile:
        file = open_file(path, create=create)
        if not path.endswith("1.log"):
            return file
        fd, file._fd = file._fd, -1
        return Disk(path, fd)

    node.storage.open = opened  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        log.roll(NOW)
    node.storage.open = open_file  # type: ignore[method-assign]
    append(log, b"y")
    log.close()
    node.store.abandon()
    again = LogStore(DiskStorage(), SystemRandom(), [str(node.paths[0])])
    again.open_directories()
    again.load(lambda _topic: CONFIG, NOW)
    found = again.get(A0)
    assert found is not None
    assert read_all(found) == [(0, b"x"), (1, b"y")]


def test_a_node_does_not_start_with_half_of_its_directories_for_want_of_descriptors(tmp_path: Path) -> None:
    node = Node(tmp_path)
    append(node.full, b"x")
    node.store.abandon()
    storage = RefusingStorage()
    again = LogStore(storage, SystemRandom(), [str(path) for path in node.paths])
    again.open_directories()
    storage.errno, storage.refuses = errno.EMFILE, lambda path: path.endswith(".index")
    with pytest.raises(LogDirectoryError, match="ulimit"):
        again.load(lambda _topic: CONFIG, NOW)
    assert [log_dir.offline for log_dir in again.directories] == [False, False]
    again.abandon()


def test_the_limit_of_open_segments_holds_for_all_directories_together(tmp_path: Path) -> None:
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    store = LogStore(DiskStorage(), SystemRandom(), paths, open_files=5)
    store.open_directories()
    store.load(lambda _topic: CONFIG, NOW)
    for number in range(20):
        append(store.create(TopicPartition("t", number), TOPIC_ID, CONFIG, NOW), b"x")
    opened = [log.active_segment for log in store.logs().values() if log.active_segment._shared is not None]
    assert len(opened) <= 5
    assert all(read_all(log) == [(0, b"x")] for log in store.logs().values())
    store.shutdown(NOW)


def test_an_empty_pool_is_a_pool() -> None:
    pool = OpenFiles(1)
    assert LogDirectory(DiskStorage(), "/nowhere", open_files=pool).open_files is pool


class Custody:
    """Keys of one topic in each directory; the disk of some directories refuses to forget them."""

    def __init__(self) -> None:
        self.refusing: set[str] = set()
        self.destroyed: list[tuple[str, object]] = []

    def destroy_keys(self, directory: str, topic: str, dead: object) -> None:
        if directory in self.refusing:
            raise OSError(errno.ENOSPC, "injected")
        self.destroyed.append((f"{directory}:{topic}", dead))


def test_keys_that_a_full_directory_keeps_are_destroyed_later(tmp_path: Path) -> None:
    node = Node(tmp_path)
    custody = Custody()
    node.store.custody = custody  # type: ignore[assignment]
    full, good = map(str, node.paths)
    custody.refusing.add(full)
    node.store.destroy_keys("gone")
    assert custody.destroyed == [(f"{good}:gone", None)]
    with pytest.raises(KafkaError):
        node.store.destroy_keys("again", [A0])
    node.assert_online()
    carried_out(node.store.removals(NOW))
    custody.refusing.clear()
    carried_out(node.store.removals(NOW))
    # Without the keys of a topic that was created since under the same name.
    assert custody.destroyed == [(f"{good}:gone", None), (f"{full}:gone", ())]
    carried_out(node.store.removals(NOW))
    assert len(custody.destroyed) == 2


def reopened(path: Path, config: TopicConfig) -> LogStore:
    store = LogStore(RefusingStorage(), SystemRandom(), [str(path)])
    store.open_directories()
    store.load(lambda _topic: config, NOW)
    return store


def test_a_directory_that_refuses_a_checkpoint_is_not_called_clean(tmp_path: Path, code: int) -> None:
    """A follower of a compacted topic has holes in its last segment. After a clean stop nothing behind a hole can lie past
    the recovery point: with an old one a start would cut off what was fetched since."""
    config = COMPACT.replace(index_interval_bytes=4096)
    node = Node(tmp_path, config)
    for offset in (0, 1, 20, 21):
        node.full.append_as_follower(batch(b"x", base_offset=offset), now_ms=NOW)
        if offset == 1:
            node.full.flush(NOW)
            node.store.checkpoint_recovery_points()
    node.storage.errno = code
    node.storage.refuses = lambda path: path == f"{node.paths[0]}/recovery-point-offset-checkpoint"
    node.store.shutdown(NOW)
    node.relent()
    assert [(path / ".kafka_cleanshutdown").exists() for path in node.paths] == [False, True]
    log = reopened(node.paths[0], config).get(A0)
    assert log is not None
    assert [offset for offset, _ in read_all(log)] == [0, 1, 20, 21]


def test_a_store_that_was_not_loaded_leaves_the_checkpoints_alone(tmp_path: Path) -> None:
    store = reopened(tmp_path, CONFIG)
    log = store.create(A0, TOPIC_ID, CONFIG, NOW)
    write(log)
    log.advance_log_start_offset(3)
    store.shutdown(NOW)
    unloaded = LogStore(RefusingStorage(), SystemRandom(), [str(tmp_path)])
    unloaded.open_directories()
    unloaded.shutdown(NOW)
    again = reopened(tmp_path, CONFIG).get(A0)
    assert again is not None
    assert (again.log_start_offset, again.high_watermark) == (3, 4)
