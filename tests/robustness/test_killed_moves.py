"""A real node that is killed with SIGKILL at every step of a promotion (AlterReplicaLogDirs), while records are written."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.generated import alter_replica_log_dirs_request as moving
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from tests.robustness.server_process import ROOT, ServerProcess, environment
from tests.robustness.wire import Closed, call, create_topic, produce, read_back
from tests.support.frames import RawConnection

RECORDS = 40


class DyingServer(ServerProcess):
    def launch_dying(self, steps: int, paths: str) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.robustness.killed_promotion", str(steps), paths, "server", "start", str(self.file)],
                env={**environment(), "PYTHONPATH": f"{ROOT}/src:{ROOT}"}, cwd=ROOT,
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def connect(server: ServerProcess) -> RawConnection:
    return RawConnection("127.0.0.1", server.port, timeout=20)


def places(connection: RawConnection) -> dict[str, bool]:
    """Log directory -> whether what it has of `t` is a copy."""
    answer = call(connection, DescribeLogDirsRequest(None))
    return {
        directory.log_dir: topic.partitions[0].is_future_key
        for directory in answer.results
        for topic in directory.topics
        if topic.name == "t"
    }


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def dying_promotion(server: DyingServer, target: Path, steps: int, paths: str, count: int) -> int:
    """Move `t` and write to it until the process dies; how many records were acknowledged in all."""
    server.launch_dying(steps, paths)
    eventually(lambda: server._answers(20), "a start")
    with connect(server) as connection:
        request = moving.AlterReplicaLogDirsRequest(
            [moving.AlterReplicaLogDir(str(target), [moving.AlterReplicaLogDirTopic("t", [0])])]
        )
        try:
            call(connection, request)
            while server._running().poll() is None and places(connection) != {str(target): False}:
                if produce(connection, "t", 0, b"%d" % count)[0] == 0:
                    count += 1
        except (OSError, Closed):
            server._running().wait(20)
    return count


def round_of(server: DyingServer, steps: int, paths: str, count: int) -> tuple[int, bool]:
    """One kill; the records that are there now and whether the process died."""
    with connect(server) as connection:
        [source] = [Path(path) for path in places(connection)]
    target = next(path for path in server.log_dirs if path != source)
    server.stop()
    acked = dying_promotion(server, target, steps, paths, count)
    died = server._running().poll() is not None
    if not died:
        server.stop()
    server.start()
    with connect(server) as connection:
        found = read_back(connection, "t", 0)
        assert found[:acked] == values(acked), f"killed before change {steps}"
        assert len(found) <= acked + 1, "the one that was not answered may be there"
        eventually(lambda: places(connection) == {str(target): False}, "the move goes on and ends")
        found = read_back(connection, "t", 0)
        assert found[:acked] == values(acked)
        eventually(lambda: folders(server) == [f"{target}/t-0"], f"{folders(server)} are left")
        if len(found) == acked:
            assert produce(connection, "t", 0, b"%d" % acked)[0] == 0
    server.assert_no_traceback()
    return acked + 1, died


def folders(server: ServerProcess) -> list[str]:
    return sorted(str(path) for directory in server.log_dirs for path in directory.glob("t-0*"))


@pytest.mark.parametrize(
    ("paths", "kills"),
    [
        # The last sync of the copy's folder, and the rename of each of the two folders.
        ("(-future|/t-0)$", 3),
        # All changes: 32, because each file is synced once.
        pytest.param("", 25, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_a_kill_before_every_step_of_a_promotion(tmp_path: Path, paths: str, kills: int) -> None:
    server = DyingServer(
        tmp_path,
        log_dirs=[tmp_path / "a", tmp_path / "b"],
        properties={"log.segment.delete.delay.ms": "200", "log.segment.bytes": "1048576"},
    )
    with server:
        with connect(server) as connection:
            assert create_topic(connection, "t", 1) == 0
            for value in values(RECORDS):
                assert produce(connection, "t", 0, value)[0] == 0
        count, steps, died = RECORDS, 0, True
        while died:
            count, died = round_of(server, steps, paths, count)
            steps += 1
    assert steps > kills
