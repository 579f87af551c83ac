"""Erasure at the log: a kill before every single step on the disk, logs that are cut meanwhile, keys of deleted topics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import Buffer

from ottla.env.config import TopicConfig
from ottla.log.erasure import SHORT_LOG_MS, Eraser
from ottla.log.log_store import LogStore
from ottla.log.partition_log import PartitionLog
from ottla.model.erasures import Erasure, key_hash
from ottla.model.errors import KafkaError
from ottla.model.ids import TopicPartition, Uuid
from ottla.protocol.records import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskFile, DiskStorage
from ottla.security.encryption import EncryptedStorage
from ottla.security.keystore import MasterKeys
from tests.log.compaction_history import NOW, HandClock
from tests.security.test_encryption import config as node_config
from tests.security.test_encryption import master_line

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
ID = Uuid(b"0123456789abcdef")
KEYS = (b"ada", b"bob", b"eve")
COUNT = 12


def settings(*forget: str) -> TopicConfig:
    return TopicConfig(
        segment_bytes=1 << 20, internal_segment_bytes=700, index_interval_bytes=100, ottla_encryption_forget=forget
    )


CONFIG = settings()


class Clock(HandClock):
    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.now_ms - NOW


class Killed(BaseException):
    """Nothing may catch it, and nothing reaches the disk after it."""


class Disk(DiskStorage):
    """A real disk without waiting for it: a killed process loses nothing that the kernel has."""

    __slots__ = ()

    def write_atomic(self, path: str, data: bytes) -> None:
        Path(path + ".tmp").write_bytes(data)
        Path(path + ".tmp").replace(path)

    def sync_dir(self, path: str) -> None:
        pass


class KilledStorage(Disk):
    """Stops before its n-th change; a write stops half-way."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not self.exists(path):
            self.step()
        return KilledFile(super().open(path, create=create), self)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.step()
        Path(path + ".tmp").write_bytes(data[: len(data) // 2])
        self.step()
        super().write_atomic(path, data)

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.step()
        super().remove(path)


class KilledFile(DiskFile):
    __slots__ = ("_storage",)

    def __init__(self, file: DiskFile, storage: KilledStorage) -> None:
        super().__init__(file.path, file.fileno())
        file._fd = -1  # the descriptor is this object's now, to close once
        self._storage = storage

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            self._storage.step()
        except Killed:
            if self._storage.left == -1:
                view = memoryview(data)
                super().pwrite(view[: len(view) // 2], position)
            raise
        super().pwrite(data, position)

    def sync(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        if size != self.size():
            self._storage.step()
        super().truncate(size)


def encrypted(directory: Path, inner: DiskStorage | None = None) -> EncryptedStorage:
    master = directory.parent / "master"
    master.write_text(master_line())
    masters = MasterKeys(node_config(directory, **{"ottla.encryption.master.key.file": str(master)}))
    return EncryptedStorage(inner or Disk(), [str(directory)], masters)


def opened(directory: Path, config: TopicConfig, inner: DiskStorage | None = None) -> LogStore:
    storage = encrypted(directory, inner)
    store = LogStore(storage, SystemRandom(), [str(directory)])
    store.custody = storage
    store.load(lambda _topic: config, NOW)
    return store


def eraser_of(store: LogStore, clock: Clock | None = None) -> Eraser:
    assert store.custody is not None
    return Eraser(store, clock or Clock(), store.custody)


def erase_all(store: LogStore, clock: Clock | None = None) -> None:
    eraser = eraser_of(store, clock)
    while _run(eraser.erase_next()):
        pass


def _run(steps: Iterator[object]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bool(done.value)


def forgetting(key: bytes, end: int) -> TopicConfig:
    entry = str(Erasure(key_hash("t", key), {place.partition: end for place in PLACES}))
    return settings(entry)


def secret(number: int) -> bytes:
    return b"SECRET-OF-" + KEYS[number % 3] + b"-%d" % number


def write(log: PartitionLog, first: int, count: int, *, per_batch: int = 3) -> None:
    for start in range(first, first + count, per_batch):
        records = [SimpleRecord(NOW, KEYS[n % 3], secret(n) + b"." * 40) for n in range(start, start + per_batch)]
        log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)


def read(log: PartitionLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).read()
        for position, _ in iterate_batches(data):
            for record in iterate_records(data, position):
                found[record.offset] = record.key, record.value
        offset = max(found) + 1
    return found


def log_of(store: LogStore, place: TopicPartition = PLACES[0]) -> PartitionLog:
    log = store.get(place)
    assert log is not None
    return log


def make(directory: Path) -> None:
    directory.mkdir(parents=True)
    store = opened(directory, CONFIG)
    for place in PLACES:
        write(store.create(place, ID, CONFIG, NOW), 0, COUNT)
    store.shutdown(NOW)


def readable(directory: Path, keys_of: Path) -> bytes:
    """What the segments in `directory` yield with the keys of another."""
    look = directory.parent / "look"
    shutil.copytree(directory, look)
    shutil.copy(keys_of / "encryption-keys", look / "encryption-keys")
    disk, found = encrypted(look), b""
    for path in sorted(look.glob("t-*/*.log*")):
        try:
            found += disk.read_bytes(str(path))
        except OSError:  # no key for it
            continue
    shutil.rmtree(look)
    return found


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_before_every_step(tmp_path: Path, stride: int) -> None:
    """Wherever it dies: the next start has every record, finishes the erasure, and no earlier file yields the value."""
    template = tmp_path / "template"
    make(template)
    config = forgetting(b"bob", COUNT - 3)  # the last batch came after it
    assert b"SECRET-OF-bob-1" in readable(template, template), "the look can fail"
    kills = 0
    while True:
        directory = tmp_path / "node"
        shutil.copytree(template, directory)
        disk = KilledStorage(kills)
        try:
            erase_all(opened(directory, config, disk))
            finished = True
        except Killed:
            finished = False
        store = opened(directory, config)
        for place in PLACES:
            found = read(log_of(store, place))
            assert sorted(found) == list(range(COUNT)), f"killed before change {kills}"
            assert [found[n][1] for n in range(0, COUNT, 3)] == [secret(n) + b"." * 40 for n in range(0, COUNT, 3)]
        erase_all(store)
        for place in PLACES:
            values = [value for key, value in read(log_of(store, place)).values() if key == b"bob"]
            assert values == [None] * (COUNT // 3 - 1) + [secret(COUNT - 2) + b"." * 40], f"killed before {kills}"
        store.shutdown(NOW)
        for source in (template, directory):
            left = readable(source, directory)
            assert not [n for n in range(1, COUNT - 3, 3) if secret(n) + b"." in left], f"killed before change {kills}"
        assert log_of(opened(directory, config)).erasure_notes.entries == config.ottla_encryption_forget
        shutil.rmtree(directory)
        if finished:
            break
        kills += stride
    assert kills > 40


def test_a_log_that_is_cut_and_fetched_again_is_erased_again(tmp_path: Path) -> None:
    """A leader that has not erased yet gives the values back to a follower that has."""
    make(tmp_path / "node")
    config = forgetting(b"bob", COUNT)
    store = opened(tmp_path / "node", config)
    erase_all(store)
    log = log_of(store)
    assert log.erasure_notes.entries
    log.truncate_to(9, NOW)
    assert not log.erasure_notes.entries
    write(log, 9, COUNT - 9)
    assert read(log)[10][1] is not None, "as it came from the leader"
    store.shutdown(NOW)
    store = opened(tmp_path / "node", config)  # the note is not on the disk either
    erase_all(store)
    assert {value for key, value in read(log_of(store)).values() if key == b"bob"} == {None}
    log_of(store).truncate_fully_and_start_at(0, NOW)
    assert not log_of(store).erasure_notes.entries
    write(log_of(store), 0, COUNT)
    erase_all(store)
    assert {value for key, value in read(log_of(store)).values() if key == b"bob"} == {None}
    log_of(store).truncate_to(COUNT, NOW)
    assert log_of(store).erasure_notes.entries, "nothing below its end was cut"


def test_a_crash_that_takes_the_end_takes_the_note(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    make(directory)
    config = forgetting(b"bob", COUNT)
    store = opened(directory, config)
    erase_all(store)
    segments = [segment for segment in log_of(store).segments if segment.size]
    store.shutdown(NOW)
    last = Path(segments[-1].path(".log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    store = opened(directory, config)
    log = log_of(store)
    assert log.log_end_offset < COUNT
    assert not log.erasure_notes.entries
    write(log, log.log_end_offset, COUNT - log.log_end_offset)
    erase_all(store)
    assert {value for key, value in read(log).values() if key == b"bob"} == {None}


def test_a_log_that_is_cut_while_it_is_written_anew_keeps_what_came_instead(tmp_path: Path) -> None:
    """A leader change: the segment that is being written anew is cut, is the active one again, and grows."""
    make(tmp_path / "node")
    store = opened(tmp_path / "node", forgetting(b"bob", 3))
    log = log_of(store)
    steps = eraser_of(store).erase_next()
    cut = False
    for sync in steps:
        if sync is not None and not cut:  # the first segment is complete beside the log
            log.truncate_to(3, NOW)
            write(log, 300, 3)
            cut = True
    assert cut
    assert read(log)[3] == (b"ada", secret(300) + b"." * 40), "what came after the cut is lost"
    erase_all(store)
    assert [read(log)[n][1] is None for n in range(6)] == [False, True, False, False, False, False]


def test_a_log_that_lost_its_end_is_erased_as_far_as_it_goes(tmp_path: Path) -> None:
    make(tmp_path / "node")
    store = opened(tmp_path / "node", forgetting(b"bob", COUNT + 9))
    clock = Clock()
    eraser = eraser_of(store, clock)
    assert not _run(eraser.erase_next()), "it may be fetching"
    clock.now_ms += SHORT_LOG_MS
    assert _run(eraser.erase_next())
    assert {value for key, value in read(log_of(store)).values() if key == b"bob"} == {None}
    assert not log_of(store).erasure_notes.entries, "what comes to its place is looked at too"
    clock.now_ms += 10 * SHORT_LOG_MS
    assert not _run(eraser.erase_next()), "once"
    for place in PLACES:
        write(log_of(store, place), COUNT, 9)
    assert _run(eraser.erase_next())
    assert {value for key, value in read(log_of(store)).values() if key == b"bob"} == {None}


def test_keys_of_a_deleted_topic_are_destroyed_before_its_files_go(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    make(directory)
    shutil.copytree(directory, tmp_path / "backup")
    store = opened(directory, CONFIG)
    reading = log_of(store, PLACES[1])
    store.destroy_keys("t")
    for place in PLACES:
        store.delete(place, NOW)
    assert store.keyed_topics() == set()
    with pytest.raises(KafkaError):
        read(reading)
    assert not reading.log_dir.offline, "a key that was destroyed is no broken disk"
    again = store.create(PLACES[0], Uuid(b"f" * 16), CONFIG, NOW)
    write(again, 0, 3)
    assert len(read(again)) == 3
    store.shutdown(NOW)
    for source in (directory, tmp_path / "backup"):
        assert b"SECRET-OF-bob-4" not in readable(source, directory)
    assert len(read(log_of(opened(directory, CONFIG)))) == 3


def test_a_namesake_keeps_its_keys(tmp_path: Path) -> None:
    """One folder belongs to the deleted topic, the other to the topic of the same name that came after it."""
    directory = tmp_path / "node"
    make(directory)
    store = opened(directory, CONFIG)
    store.destroy_keys("t", [PLACES[0]])
    store.mark_stray(PLACES[0], NOW)
    write(log_of(store, PLACES[1]), COUNT, 3)
    store.shutdown(NOW)
    store = opened(directory, CONFIG)
    assert len(read(log_of(store, PLACES[1]))) == COUNT + 3
    stray = next(directory.glob("t-0.*-stray"))
    with pytest.raises(OSError, match="has no key"):
        encrypted(directory).read_bytes(str(next(stray.glob("*.log"))))
