"""Disks that fail or fill up under a running server: the rest goes on, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import errno
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.runtime.disk import DiskFile, DiskStorage
from ottla.server.formatting import storage
from ottla.testing import Broker
from tests.robustness.server_process import ServerProcess
from tests.robustness.wire import call, create_topic, fetch, metadata, produce, read_back
from tests.support.frames import RawConnection

KAFKA_STORAGE_ERROR = 56
MIB = 1024 * 1024
PARTITIONS = 4


def connect(server: ServerProcess | Broker) -> RawConnection:
    port = server.port if isinstance(server, ServerProcess) else int(server.bootstrap_servers.rsplit(":", 1)[1])
    return RawConnection("127.0.0.1", port, timeout=20)


def placed(connection: RawConnection) -> dict[str, list[int]]:
    """Log directory -> partitions of `t` in it."""
    answer = call(connection, DescribeLogDirsRequest(None))
    return {
        directory.log_dir: sorted(
            p.partition_index for topic in directory.topics if topic.name == "t" for p in topic.partitions
        )
        for directory in answer.results
    }


def directory_errors(connection: RawConnection) -> dict[str, int]:
    return {
        directory.log_dir: directory.error_code for directory in call(connection, DescribeLogDirsRequest(None)).results
    }


# A directory fails


class FaultyFile(DiskFile):
    __slots__ = ("_storage",)

    def __init__(self, storage: FaultyStorage, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._storage = storage

    def pwrite(self, data: Any, position: int) -> None:
        self._storage.check("write", self.path)
        super().pwrite(data, position)

    def pread(self, length: int, position: int) -> bytes:
        self._storage.check("read", self.path)
        return super().pread(length, position)

    def sync(self) -> None:
        self._storage.check("sync", self.path)
        super().sync()


class FaultyStorage(DiskStorage):
    """The real disk, and EIO for some calls below a folder."""

    __slots__ = ()
    failing: tuple[frozenset[str], str] = (frozenset(), "")

    def check(self, call: str, path: str) -> None:
        calls, prefix = FaultyStorage.failing
        if call in calls and path.startswith(prefix):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        opened = super().open(path, create=create)
        fd, opened._fd = opened._fd, -1
        return FaultyFile(self, path, fd)


@pytest.fixture
def two_directories(tmp_path, monkeypatch) -> Iterator[tuple[Broker, Path, Path]]:
    monkeypatch.setattr(storage, "DiskStorage", FaultyStorage)
    monkeypatch.setattr(FaultyStorage, "failing", (frozenset(), ""))
    good, bad = tmp_path / "good", tmp_path / "bad"
    with Broker(
        directory=tmp_path, properties={"log.dirs": f"{good},{bad}", "log.flush.scheduler.interval.ms": "50"}
    ) as broker:
        with connect(broker) as connection:
            assert create_topic(connection, "t", PARTITIONS) == 0
            for partition in range(PARTITIONS):
                assert produce(connection, "t", partition, b"before")[0] == 0
        yield broker, good, bad


@pytest.mark.parametrize("calls", [{"write"}, {"write", "read", "sync"}])
def test_a_directory_that_cannot_be_written_goes_offline_alone(two_directories, calls):
    broker, good, bad = two_directories
    with connect(broker) as connection:
        where = placed(connection)
        assert where[str(good)]
        assert where[str(bad)]
        FaultyStorage.failing = (frozenset(calls), str(bad))
        for partition in where[str(bad)]:
            assert produce(connection, "t", partition, b"lost")[0] == KAFKA_STORAGE_ERROR
            assert fetch(connection, "t", partition)[0] == KAFKA_STORAGE_ERROR
        for partition in where[str(good)]:
            assert produce(connection, "t", partition, b"after")[0] == 0
            assert read_back(connection, "t", partition) == [b"before", b"after"]
        assert directory_errors(connection) == {str(good): 0, str(bad): KAFKA_STORAGE_ERROR}
        assert create_topic(connection, "new", 2) == 0
        for partition in range(2):
            assert produce(connection, "new", partition, b"x")[0] == 0
        assert len(list(good.glob("new-*"))) == 2


def test_a_directory_that_cannot_be_synced_goes_offline(two_directories):
    broker, good, bad = two_directories
    with connect(broker) as connection:
        where = placed(connection)
        assert create_topic(connection, "synced", PARTITIONS, {"flush.messages": "1"}) == 0
        FaultyStorage.failing = (frozenset({"sync"}), str(bad))
        codes = {produce(connection, "synced", partition, b"x")[0] for partition in range(PARTITIONS)}
        assert codes == {0, KAFKA_STORAGE_ERROR}
        assert produce(connection, "t", where[str(bad)][0], b"x")[0] == KAFKA_STORAGE_ERROR
        assert produce(connection, "t", where[str(good)][0], b"x")[0] == 0


def test_what_was_acknowledged_is_there_when_the_disk_is_back(tmp_path, two_directories):
    broker, _, bad = two_directories
    with connect(broker) as connection:
        where = placed(connection)
        FaultyStorage.failing = (frozenset({"write"}), str(bad))
        assert produce(connection, "t", where[str(bad)][0], b"lost")[0] == KAFKA_STORAGE_ERROR
    broker.stop()
    FaultyStorage.failing = (frozenset(), "")
    with broker, connect(broker) as connection:
        for partition in range(PARTITIONS):
            assert read_back(connection, "t", partition) == [b"before"]
            assert produce(connection, "t", partition, b"again")[0] == 0


def take_away(directory: Path) -> None:
    """At once: file by file the server would write its checkpoints anew between them."""
    directory.rename(directory.with_suffix(".away"))
    directory.write_text("no folder any more")


def test_a_directory_taken_away_under_a_server(tmp_path):
    """With real files: one folder is gone, its partitions say so, the others and the process go on."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    properties = {
        "log.flush.offset.checkpoint.interval.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "100",
    }
    with ServerProcess(tmp_path, log_dirs=[good, bad], properties=properties) as server, connect(server) as connection:
        assert create_topic(connection, "t", PARTITIONS) == 0
        where = placed(connection)
        take_away(bad)
        deadline = time.monotonic() + 60
        while produce(connection, "t", where[str(bad)][0], b"x")[0] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert produce(connection, "t", where[str(bad)][0], b"x")[0] == KAFKA_STORAGE_ERROR
        for partition in where[str(good)]:
            assert produce(connection, "t", partition, b"x")[0] == 0
        server.assert_no_traceback()
        code, _ = server.stop()
        assert code == 0
        assert (good / ".kafka_cleanshutdown").exists()


def test_without_any_directory_the_server_ends_with_one_line(tmp_path):
    properties = {"log.flush.offset.checkpoint.interval.ms": "100", "metadata.log.dir": str(tmp_path / "metadata")}
    with ServerProcess(tmp_path, properties=properties) as server, connect(server) as connection:
        assert create_topic(connection, "t") == 0
        take_away(tmp_path / "data")
        assert server.process is not None
        assert server.process.wait(60) == 1
        server.assert_no_traceback()
        assert server.log_text().splitlines()[-1].startswith("ottla: all log directories have failed")


# A disk is full


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def fill(connection: RawConnection, acked: list[bytes], size: int = 100_000) -> int:
    """Produce until it is refused; the error code."""
    while True:
        value = len(acked).to_bytes(8, "big") * (size // 8)
        code, offset = produce(connection, "t", 0, value)
        if code:
            return code
        assert offset == len(acked)
        acked.append(value)
        assert len(acked) < 2000, "the disk is never full"


def test_a_full_disk_is_the_producers_error_only(tmp_path):
    data = tmp_path / "disk"
    properties = {"metadata.log.dir": str(tmp_path / "metadata"), "log.segment.bytes": "1048576"}
    with small_disk(data, "16m"):
        server = ServerProcess(tmp_path, log_dirs=[data / "data"], properties=properties)
        with server:
            (data / "filler").write_bytes(bytes(6 * MIB))
            acked: list[bytes] = []
            with connect(server) as connection:
                assert create_topic(connection, "t") == 0
                assert fill(connection, acked) == KAFKA_STORAGE_ERROR
                assert len(acked) > 20
                assert read_back(connection, "t", 0) == acked  # reading goes on
                fill(connection, acked, size=1000)  # the last kilobytes
                assert produce(connection, "t", 0, bytes(5000))[0] == KAFKA_STORAGE_ERROR
                (data / "filler").unlink()
                before = len(acked)
                fill(connection, acked)
                assert len(acked) > before + 20, "space was freed, but it did not go on"
            server.kill()  # on a full disk
            (data / "data/t-0").joinpath("00000000000000000000.timeindex").unlink()  # a little room to start with
            server.start()
            with connect(server) as connection:
                assert read_back(connection, "t", 0) == acked
            server.assert_no_traceback()


def test_files_that_may_not_grow(tmp_path):
    """The same without mounts: RLIMIT_FSIZE is set and lifted under the running server."""
    with ServerProcess(tmp_path, properties={"metadata.log.dir": str(tmp_path / "metadata")}) as server:
        acked: list[bytes] = []
        with connect(server) as connection:
            assert create_topic(connection, "t") == 0
            assert produce(connection, "t", 0, b"first") == (0, 0)
            acked.append(b"first")
            unlimited = resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (2 * MIB, resource.RLIM_INFINITY))
            assert fill(connection, acked) == KAFKA_STORAGE_ERROR
            assert read_back(connection, "t", 0) == acked
            assert metadata(connection, "t").topics[0].partitions[0].leader_id == 1
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, unlimited)
            assert produce(connection, "t", 0, b"last") == (0, len(acked))
            acked.append(b"last")
        server.kill()
        server.start()
        with connect(server) as connection:
            assert read_back(connection, "t", 0) == acked
        server.assert_no_traceback()
