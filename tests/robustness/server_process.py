"""A real server process in a folder of its own: started as a user starts it, killed as an operator never should."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.frames import RawConnection
from tests.support.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
CLUSTER_ID = "b2t0bGEtcm9idXN0LXRlcw"
COMMAND = [sys.executable, "-m", "ottla.cli.main"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}


def node_properties(log_dirs: list[Path], port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": ",".join(map(str, log_dirs)),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file


def ottla(*arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """One command of the command line, to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


class ServerProcess:
    """One node. `start` after `kill` or `stop` finds the same folder, ports and log file again."""

    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        log_dirs: list[Path] | None = None,
        limits: Mapping[int, int] | None = None,
    ) -> None:
        """`limits`: resource limits of the process, soft and hard."""
        self.directory = directory
        self.log_dirs = log_dirs or [directory / "data"]
        self.port, self.controller_port = free_ports(2)
        self.properties = {**node_properties(self.log_dirs, self.port, self.controller_port), **(properties or {})}
        self.file = directory / "server.properties"
        self.log_file = directory / "server.log"
        self._limits = dict(limits or {})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_properties(self.file, self.properties)
        done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", self.file, "--standalone")
        if done.returncode:
            raise RuntimeError(done.stderr)
        return self

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and return at once."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "server", "start", str(self.file)],
                env=environment(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                preexec_fn=self._limit if self._limits else None,  # noqa: PLW1509 - no threads that hold locks here
            )  # fmt: skip
        return self.process

    def _limit(self) -> None:
        for kind, value in self._limits.items():
            resource.setrlimit(kind, (value, value))

    def start(self, timeout: float = 60) -> float:
        """Start and wait for the first answer; the seconds that took."""
        started = time.monotonic()
        process = self.launch()
        while not self._answers(timeout):
            if process.poll() is not None or time.monotonic() - started > timeout:
                raise RuntimeError(f"the server did not start:\n{self.log_text()[-3000:]}")
            time.sleep(0.01)
        return time.monotonic() - started

    def _answers(self, timeout: float) -> bool:
        try:
            with RawConnection("127.0.0.1", self.port, timeout=timeout) as connection:
                return connection.request(18, 0, b"") is not None
        except OSError:
            return False

    @property
    def pid(self) -> int:
        return self._running().pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise RuntimeError("the server was not started")
        return self.process

    def kill(self) -> None:
        """SIGKILL: no chance to write anything."""
        process = self._running()
        process.kill()
        process.wait(10)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60) -> tuple[int, float]:
        """A signal; the exit code and the seconds until the end."""
        process = self._running()
        started = time.monotonic()
        process.send_signal(number)
        code = process.wait(timeout)
        return code, time.monotonic() - started

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def assert_no_traceback(self) -> None:
        """Nor any event that stands for a bug of ours."""
        text = self.log_text()
        for sign in ("Traceback", "request.failed", "response.failed", "connection.failed", "Exception in callback"):
            at = text.find(sign)
            assert at < 0, text[max(0, at - 500) : at + 3000]

    def __enter__(self) -> Self:
        self.format()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
