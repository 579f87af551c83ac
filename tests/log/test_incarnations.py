"""A log starts without anything that was known of a former log with its name, whatever happens in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.env.config import TopicConfig
from ottla.log.checkpoints import read_offsets, write_offsets
from ottla.log.cleaner import Cleaner
from ottla.log.log_store import LogStore
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.protocol.records import SimpleRecord, build_batch, set_attributes
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage

from .compaction_history import COMPACT, HandClock, finished, latest, read_records
from .partition_files import NOW, FailingStorage

TOPIC_ID, NEXT_ID = Uuid(b"0123456789abcdef"), Uuid(b"fedcba9876543210")
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
CONFIG = COMPACT.replace(delete_retention_ms=0)


def opened(*paths: Path, storage: DiskStorage | None = None, config: TopicConfig = CONFIG) -> LogStore:
    disk = DiskStorage() if storage is None else storage
    store = LogStore(disk, SystemRandom(), [str(path) for path in paths])
    store.open_directories()
    store.load(lambda _topic: config, NOW)
    return store


def created(store: LogStore, partition: TopicPartition = A0, topic_id: Uuid = TOPIC_ID) -> PartitionLog:
    return store.create(partition, topic_id, CONFIG, NOW, directory=store.directories[0].path)


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], now_ms: int = NOW) -> None:
    for key, value in pairs:
        data = build_batch([SimpleRecord(now_ms, key, value)])
        log.append_as_leader(data, leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)


def fill(log: PartitionLog, count: int) -> None:
    put(log, *((b"other %d" % number, b"x") for number in range(count)))


def checkpointed(path: Path) -> dict[str, int]:
    """What each checkpoint of a directory says of A0."""
    found = {name: read_offsets(DiskStorage(), f"{path}/{name}") for name in CHECKPOINTS}
    return {name: offsets[A0] for name, offsets in found.items() if A0 in offsets}


def compacted(store: LogStore, log: PartitionLog) -> None:
    """The log is rolled, clean up to its end, and every checkpoint says so."""
    log.advance_log_start_offset(1)
    log.roll(NOW)
    assert finished(Cleaner(store, HandClock()).clean_next()) is not None
    log.flush(NOW)
    store.checkpoint_recovery_points()
    store.checkpoint_log_start_offsets()
    store.checkpoint_high_watermarks()


def compact_twice(store: LogStore) -> None:
    """Twice, with time between them: the second pass drops the tombstones that the first has seen."""
    clock = HandClock()
    cleaner = Cleaner(store, clock)
    for _ in range(4):
        clock.now_ms += 1000
        finished(cleaner.clean_next())
        log = store.get(A0)
        assert log is not None
        fill(log, 1)
        log.roll(clock.now_ms)


def write_again(log: PartitionLog) -> None:
    """A key and its tombstone, both below the offset up to which the former log was clean."""
    put(log, (b"key", b"value"), (b"key", None))
    fill(log, 12)
    log.roll(NOW)


@pytest.mark.parametrize("restart", [False, True])
def test_a_deleted_key_stays_deleted_in_a_namesake(tmp_path: Path, restart: bool) -> None:
    store = opened(tmp_path)
    fill(created(store), 10)
    log = store.get(A0)
    assert log is not None
    compacted(store, log)
    store.delete(A0, NOW)
    write_again(created(store, topic_id=NEXT_ID))
    if restart:
        store.abandon()
        store = opened(tmp_path)
        again = store.get(A0)
        assert again is not None
        again.advance_high_watermark(again.log_end_offset)
    compact_twice(store)
    namesake = store.get(A0)
    assert namesake is not None
    assert b"key" not in latest(read_records(namesake))
    store.abandon()


@pytest.mark.parametrize("way", ["deleted", "stray", "crashed"])
def test_a_new_log_has_no_entry_in_any_checkpoint(tmp_path: Path, way: str) -> None:
    store = opened(tmp_path)
    log = created(store)
    fill(log, 10)
    fill(created(store, A1), 3)
    compacted(store, log)
    assert set(checkpointed(tmp_path)) == set(CHECKPOINTS)
    if way == "deleted":
        store.delete(A0, NOW)
    elif way == "stray":
        store.mark_stray(A0, NOW)
    else:
        # The folder went, the checkpoints were not written any more.
        store.delete(A0, NOW)
        store.abandon()
        store = opened(tmp_path)
    created(store, topic_id=NEXT_ID)
    assert checkpointed(tmp_path) == {}
    assert read_offsets(DiskStorage(), f"{tmp_path}/replication-offset-checkpoint")[A1] == 3
    store.abandon()


def test_a_disk_that_refuses_to_forget_refuses_the_namesake(tmp_path: Path) -> None:
    class Disk(FailingStorage):
        def write_atomic(self, path: str, data: bytes) -> None:
            if self.failure is not None and self.failure(path):
                raise OSError(self.errno, "injected")
            super().write_atomic(path, data)

    storage = Disk()
    store = opened(tmp_path, storage=storage)
    fill(created(store), 10)
    store.checkpoint_recovery_points()
    store.delete(A0, NOW)
    storage.failure = lambda path: path.endswith("recovery-point-offset-checkpoint")
    with pytest.raises(KafkaError):
        created(store, topic_id=NEXT_ID)
    assert store.get(A0) is None
    assert not store.directories[0].offline
    storage.failure = None
    created(store, topic_id=NEXT_ID)
    assert checkpointed(tmp_path) == {}
    store.abandon()


def test_a_replica_that_is_moved_away_and_back(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    store = opened(one, two)
    log = created(store)
    fill(log, 10)
    compacted(store, log)
    for directory in (two, one):
        store.create_future(A0, str(directory), NOW)
        assert checkpointed(directory) == {}, "nothing of the log that was there before"
        while not store.moves.copy(A0, 1 << 20, NOW):
            pass
        store.moves.promote(A0, NOW)
    moved = store.get(A0)
    assert moved is not None
    assert Cleaner(store, HandClock()).first_dirty_offset(moved) == moved.log_start_offset
    store.abandon()


def test_compaction_tries_a_namesake_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    plain = created(store)
    plain.config = CONFIG.replace(cleanup_policy=frozenset({"delete"}))
    data = build_batch([SimpleRecord(NOW, b"k", b"v")])
    set_attributes(data, 0, 1)  # says that it is compressed, and is not
    plain.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    plain.advance_high_watermark(1)
    plain.roll(NOW)
    plain.config = CONFIG
    assert finished(Cleaner(store, HandClock()).clean_next()) is None
    store.delete(A0, NOW)
    log = created(store, topic_id=NEXT_ID)
    fill(log, 5)
    log.roll(NOW)
    assert finished(Cleaner(store, HandClock()).clean_next()) is not None
    store.abandon()


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_appended_after_a_truncation_is_compacted(tmp_path: Path, restart: bool) -> None:
    store = opened(tmp_path)
    log = created(store)
    fill(log, 10)
    compacted(store, log)
    log.truncate_to(2, NOW)
    assert {checkpointed(tmp_path)[name] for name in CHECKPOINTS} <= {1, 2}
    write_again(log)
    if restart:
        store.abandon()
        store = opened(tmp_path)
        again = store.get(A0)
        assert again is not None
        again.advance_high_watermark(again.log_end_offset)
    compact_twice(store)
    cut = store.get(A0)
    assert cut is not None
    assert b"key" not in latest(read_records(cut))
    store.abandon()


def test_a_log_that_starts_over_is_dirty_from_its_start(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = created(store)
    fill(log, 10)
    compacted(store, log)
    log.truncate_fully_and_start_at(5, NOW)
    assert Cleaner(store, HandClock()).first_dirty_offset(log) == 5
    assert max(checkpointed(tmp_path).values()) <= 5
    log.truncate_to(3, NOW)
    assert max(checkpointed(tmp_path).values()) <= 3
    store.abandon()


def test_an_entry_above_the_log_does_not_count_once_the_log_has_grown(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(created(store), 5)
    store.abandon()
    write_offsets(DiskStorage(), f"{tmp_path}/cleaner-offset-checkpoint", {A0: 8})
    store = opened(tmp_path)
    log = store.get(A0)
    assert log is not None
    fill(log, 10)
    assert Cleaner(store, HandClock()).first_dirty_offset(log) == 0
    store.abandon()
    store = opened(tmp_path)
    again = store.get(A0)
    assert again is not None
    assert Cleaner(store, HandClock()).first_dirty_offset(again) == 0
    store.abandon()


def test_a_checkpoint_is_written_when_it_has_changed(tmp_path: Path) -> None:
    class Disk(DiskStorage):
        def write_atomic(self, path: str, data: bytes) -> None:
            writes.append(path.rpartition("/")[2])
            super().write_atomic(path, data)

    writes: list[str] = []
    store = opened(tmp_path, storage=Disk())
    log = created(store)
    fill(log, 5)
    for start in (0, 0, 2, 2, 3):
        log.advance_log_start_offset(start)
        store.checkpoint_log_start_offsets()
    assert writes == ["log-start-offset-checkpoint"] * 3
    store.checkpoint_high_watermarks(sync=False)
    store.checkpoint_high_watermarks()
    assert writes[3:] == ["replication-offset-checkpoint"], "what was not synced is written again"
    store.abandon()
