"""No space left, at every kind of write: errors to whoever asked, nothing acknowledged lost, all of it again with space.

A node in this process on a disk that is full for chosen files only: half of the bytes are written, as a real disk does.
`test_failing_disk.py` fills a real one.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.runtime.disk import DiskFile, DiskStorage
from ottla.server.formatting import storage
from ottla.testing import Broker
from tests.robustness.wire import Closed, call, commit, committed, create_topic, produce, read_back
from tests.support.frames import RawConnection

KAFKA_STORAGE_ERROR = 56
NOT_COORDINATOR = 16
GROUP = "readers"
PROPERTIES = {
    "log.cleaner.backoff.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "30",
    "log.flush.start.offset.checkpoint.interval.ms": "30",
    "replica.high.watermark.checkpoint.interval.ms": "30",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "1",
}
SMALL = {"internal.segment.bytes": "2000", "index.interval.bytes": "100"}


class FullFile(DiskFile):
    __slots__ = ()

    def pwrite(self, data: Any, position: int) -> None:
        if FullStorage.is_full("write", self.path):
            view = memoryview(data).cast("B")
            super().pwrite(view[: len(view) // 2], position)
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        super().pwrite(data, position)


class FullStorage(DiskStorage):
    """The real disk, full for some calls on some paths."""

    __slots__ = ()
    full: Callable[[str, str], bool] | None = None
    refused = 0

    @classmethod
    def is_full(cls, call_name: str, path: str) -> bool:
        hit = cls.full is not None and cls.full(call_name, path)
        cls.refused += hit
        return hit

    def check(self, call_name: str, path: str) -> None:
        if self.is_full(call_name, path):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create and not self.exists(path):
            self.check("create", path)
        opened = super().open(path, create=create)
        fd, opened._fd = opened._fd, -1
        return FullFile(path, fd)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check("write", path)
        super().write_atomic(path, data)

    def make_dirs(self, path: str) -> None:
        if not self.exists(path):
            self.check("create", path)
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", target)
        super().rename(source, target)


def ends(*suffixes: str, below: str = "") -> Callable[[str, str], bool]:
    return lambda _call, path: path.endswith(suffixes) and below in path


def in_partitions(test: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda name, path: "__cluster_metadata" not in path and test(name, path)


GOES_ON: dict[str, Callable[[str, str], bool]] = {
    "log append": in_partitions(ends(".log")),
    "index growth": in_partitions(ends(".index", ".timeindex")),
    "roll": in_partitions(lambda name, path: name == "create" and path.endswith((".log", ".index", ".timeindex"))),
    "producer snapshot": in_partitions(ends(".snapshot", ".snapshot.tmp")),
    "leader epochs": in_partitions(ends("leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp")),
    "checkpoints": ends("-offset-checkpoint", "-offset-checkpoint.tmp"),
    "new partition": lambda name, path: name == "create" and Path(path).name.startswith("new-"),
    "partition.metadata": in_partitions(ends("partition.metadata", "partition.metadata.tmp")),
    "compaction": lambda _name, path: path.endswith(".cleaned"),
    "swap": lambda name, path: name == "rename" and path.endswith((".swap", ".deleted")),
    "group offsets": ends(".log", below="__consumer_offsets"),
    "transactions": ends(".log", below="__transaction_state"),
    "everything but the metadata": in_partitions(lambda _name, _path: True),
}
ENDS: dict[str, Callable[[str, str], bool]] = {
    "metadata log": ends(".log", below="__cluster_metadata"),
    "metadata snapshot": ends(".checkpoint", ".checkpoint.part", ".checkpoint.tmp"),
    "everything": lambda _name, _path: True,
}


class Ledger:
    """What clients asked for, and what of it was acknowledged."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.acked: dict[int, bytes] = {}
        self.compacted: dict[int, bytes] = {}
        self.committed = -1
        self.topics: set[str] = set()
        self.codes: set[int] = set()

    def round(self, connection: RawConnection) -> bool:
        """One of everything; whether all of it was acknowledged."""
        number = next(self.numbers)
        value = b"%d " % number * 20
        fine = True
        for topic, book in (("t", self.acked), ("c", self.compacted)):
            code, offset = produce(connection, topic, 0, value)
            if code == 0:
                assert offset not in book, f"{topic}: offset {offset} was given twice"
                book[offset] = value
            self.codes.add(code)
            fine &= code == 0
        code = commit(connection, GROUP, "t", number)
        self.committed = number if code == 0 else self.committed
        self.codes.add(code)
        asked = InitProducerIdRequest(f"id-{number}", 60_000)
        initialised = call(connection, asked, 4).error_code
        self.codes.add(initialised)
        if number % 5 == 0:
            name = f"new-{number}"
            if create_topic(connection, name) == 0:
                self.topics.add(name)
                produce(connection, name, 0, b"x")  # which may be too early for it
        return bool(fine and code == 0 and initialised == 0)

    def check(self, connection: RawConnection) -> None:
        values = read_back(connection, "t", 0)
        assert dict(enumerate(values)) == self.acked
        error, offset = committed(connection, GROUP, "t")
        assert (error, offset) == (0, self.committed)
        deadline = time.monotonic() + 20
        for name in self.topics:
            while produce(connection, name, 0, b"x")[0]:
                assert time.monotonic() < deadline, f"{name} was created, and is not there"
                time.sleep(0.05)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(storage, "DiskStorage", FullStorage)
    monkeypatch.setattr(FullStorage, "full", None)
    monkeypatch.setattr(FullStorage, "refused", 0)
    broker = Broker(directory=tmp_path, properties=PROPERTIES)
    try:
        yield broker.start()
    finally:
        FullStorage.full = None
        broker.stop()


def connect(broker: Broker) -> RawConnection:
    return RawConnection("127.0.0.1", int(broker.bootstrap_servers.rsplit(":", 1)[1]), timeout=20)


def begin(connection: RawConnection, ledger: Ledger) -> None:
    assert create_topic(connection, "t", 1, SMALL) == 0
    assert (
        create_topic(connection, "c", 1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}) == 0
    )
    call(connection, FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)  # makes their topic
    deadline = time.monotonic() + 30
    while not ledger.round(connection):  # until the coordinators have their topics
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ledger.codes.clear()
    for _ in range(20):
        assert ledger.round(connection)


def assert_no_bug(output: str) -> None:
    for sign in ("Traceback", "request.failed", "response.failed", "Exception in callback"):
        at = output.find(sign)
        assert at < 0, output[max(0, at - 500) : at + 3000]


@pytest.mark.parametrize("kind", GOES_ON)
def test_a_full_disk_is_an_error_and_then_all_goes_on(
    broker: Broker, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger()
    with connect(broker) as connection:
        begin(connection, ledger)
        FullStorage.full = GOES_ON[kind]
        deadline = time.monotonic() + 20
        for turn in itertools.count():
            ledger.round(connection)
            if turn >= 25 and (FullStorage.refused or time.monotonic() > deadline):
                break
        FullStorage.full = None
        assert FullStorage.refused, "nothing was written there"
        assert ledger.codes <= {0, KAFKA_STORAGE_ERROR, NOT_COORDINATOR}
        deadline = time.monotonic() + 20
        while not ledger.round(connection):
            assert time.monotonic() < deadline, "there is space again, but it did not go on"
            time.sleep(0.05)
        for _ in range(10):
            assert ledger.round(connection)
        ledger.check(connection)
    broker.stop()
    broker.start()
    with connect(broker) as connection:
        ledger.check(connection)
        assert ledger.round(connection)
    assert_no_bug(capfd.readouterr().err)


@pytest.mark.parametrize("kind", ENDS)
def test_a_node_without_room_for_its_metadata_ends_and_starts_again(
    broker: Broker, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger()
    with connect(broker) as connection:
        begin(connection, ledger)
        FullStorage.full = ENDS[kind]
        for number in range(10):
            try:
                ledger.round(connection)
                create_topic(connection, f"more-{number}")
            except (Closed, OSError):
                break
    broker.stop()
    FullStorage.full = None
    assert FullStorage.refused
    broker.start()
    with connect(broker) as connection:
        ledger.check(connection)
        assert ledger.round(connection)
    assert_no_bug(capfd.readouterr().err)
