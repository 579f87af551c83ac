"""How long others wait while a server is abused: one ApiVersions or Metadata request every few milliseconds.

A process of its own (`python -m tests.robustness.ping PORT PID`), so that the abuser's work does not count as the
server's delay; neither does the time in which the server or this process could run and had no core, for the cores are
shared. It writes its waits in milliseconds, as JSON, when its standard input is closed and a few are there.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.frames import RawConnection

INTERVAL_S = 0.005
AT_LEAST = 50


class Waits(NamedTuple):
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"{self.count} pings: p50 {self.p50_ms:.1f}, p99 {self.p99_ms:.1f}, max {self.max_ms:.1f} ms"


class Pinger:
    """Pings while the block runs; `waits` afterwards."""

    def __init__(self, port: int, pid: int) -> None:
        self._port, self._pid = port, pid
        self.waits = Waits(0, 0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.ping", str(self._port), str(self._pid)],
            cwd=Path(__file__).resolve().parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._process.communicate(timeout=60)
        waits = sorted(json.loads(out))
        count = len(waits)
        self.waits = Waits(count, waits[count // 2], waits[min(count - 1, count * 99 // 100)], waits[-1])


def without_a_core_ms(pid: int) -> float:
    """So far, of the thread that the process began with: the server's loop is there."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1_000_000
    except FileNotFoundError:  # a kernel that does not tell
        return 0.0


def main() -> None:
    waits: list[float] = []
    pids = (int(sys.argv[2]), os.getpid())
    with RawConnection("127.0.0.1", int(sys.argv[1]), timeout=30) as connection:
        connection.request(18, 0, b"")
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], INTERVAL_S)[0] or len(waits) < AT_LEAST:
            delayed = sum(map(without_a_core_ms, pids))
            started = time.perf_counter()
            if len(waits) % 2:
                answer = connection.request(18, 0, b"")
            else:
                answer = connection.request(3, 1, b"\0\0\0\0")
            waited = (time.perf_counter() - started) * 1000
            waits.append(max(0.0, waited - (sum(map(without_a_core_ms, pids)) - delayed)))
            if answer is None:
                raise EOFError("the server closed the connection of a client that does no harm")
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
