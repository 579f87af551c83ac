"""A node that runs out of file descriptors: requests are refused, no directory fails, and the node goes on."""

from __future__ import annotations

import contextlib
import itertools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.robustness.server_process import ServerProcess
from tests.robustness.wire import create_topic, delete_topic, produce
from tests.support.frames import RawConnection

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process has open is in /proc")
STORAGE_ERROR = 56
QUICK = {
    "log.flush.scheduler.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "50",
}


def connect(server: ServerProcess) -> RawConnection:
    return RawConnection("127.0.0.1", server.port, timeout=60)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def assert_sound(server: ServerProcess) -> None:
    assert server.process is not None
    assert server.process.poll() is None
    assert "directory.failed" not in server.log_text()
    assert "metadata_log.failed" not in server.log_text()
    server.assert_no_traceback()


def descriptors(server: ServerProcess) -> dict[int, str]:
    """What each descriptor of the process is."""
    found = {}
    for path in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[int(path.name)] = str(path.readlink())
    return found


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    partitions, limit = 400, 300
    with ServerProcess(tmp_path, limits={resource.RLIMIT_NOFILE: limit}) as server:
        with connect(server) as connection:
            assert create_topic(connection, "many", partitions) == 0
            for partition in range(partitions):
                assert produce(connection, "many", partition, b"x") == (0, 0)
        segments = [name for name in descriptors(server).values() if name.endswith(".log")]
        assert len(segments) <= limit // 4 + 5, "the pool of segment files has a limit"
        consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("many", partition, 0) for partition in range(partitions)])
        read: set[int] = set()
        deadline = time.monotonic() + 60
        while len(read) < partitions:
            assert time.monotonic() < deadline, f"read {len(read)} of {partitions} partitions"
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                read.add(message.partition())
        consumer.close()
        assert_sound(server)


@contextmanager
def no_descriptors(server: ServerProcess) -> Iterator[None]:
    """From here on the process must close a file before it can open another: the limit is what it has."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    used = descriptors(server)
    free = next(number for number in itertools.count() if number not in used)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


def test_a_node_without_any_descriptor_refuses_and_goes_on(tmp_path: Path) -> None:
    properties = {**QUICK, "log.flush.interval.ms": "50"}
    compacted = {"cleanup.policy": "compact,delete", "segment.bytes": "1048576", "file.delete.delay.ms": "0"}
    with ServerProcess(tmp_path, properties=properties) as server:
        with connect(server) as connection:
            assert create_topic(connection, "open", 2, {"flush.ms": "50"}) == 0
            assert create_topic(connection, "compacted", 1, {**compacted, "segment.ms": "50"}) == 0
            # What a handler needs is imported with its first request.
            assert create_topic(connection, "warm") == 0
            assert delete_topic(connection, "warm") == 0
            assert create_topic(connection, "going", 3, {"file.delete.delay.ms": "0"}) == 0
            for number in range(5):
                assert produce(connection, "open", 0, b"%d" % number)[0] == 0
                assert produce(connection, "compacted", 0, b"%d" % number)[0] == 0
            acknowledged = 5
            with no_descriptors(server):
                # The topic exists; its log is made when there are descriptors again.
                assert create_topic(connection, "late") == 0
                assert delete_topic(connection, "going") == 0
                assert produce(connection, "late", 0, b"x")[0] != 0
                deadline = time.monotonic() + 1.5
                while time.monotonic() < deadline:
                    code, _ = produce(connection, "open", 0, b"more")
                    acknowledged += code == 0
                    assert code in (0, STORAGE_ERROR)
                    assert produce(connection, "compacted", 0, b"more")[0] in (0, STORAGE_ERROR)
                assert_sound(server)
            assert "descriptors.exhausted" in server.log_text()
            wait_for(lambda: produce(connection, "late", 0, b"x")[0] == 0, "the late topic has a log")
            assert produce(connection, "open", 0, b"last") == (0, acknowledged)
            assert produce(connection, "compacted", 0, b"last")[0] == 0
            wait_for(lambda: not list((tmp_path / "data").glob("going-*")), "the deleted folders are removed")
        assert_sound(server)
        assert server.stop()[0] == 0
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
