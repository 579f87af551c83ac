"""How long others wait while a server is abused: one ApiVersions or Metadata request every few milliseconds.

A process of its own (`python -m tests.robustness.ping PORT`), so that the abuser's work does not count as the server's
delay. It writes its waits in milliseconds, as JSON, when its standard input is closed.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.frames import RawConnection

INTERVAL_S = 0.005


class Waits(NamedTuple):
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"{self.count} pings: p50 {self.p50_ms:.1f}, p99 {self.p99_ms:.1f}, max {self.max_ms:.1f} ms"


class Pinger:
    """Pings while the block runs; `waits` afterwards."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.waits = Waits(0, 0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.ping", str(self._port)],
            cwd=Path(__file__).resolve().parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out, _ = self._process.communicate(timeout=30)
        waits = sorted(json.loads(out))
        count = len(waits)
        self.waits = Waits(count, waits[count // 2], waits[min(count - 1, count * 99 // 100)], waits[-1])


def main() -> None:
    waits = []
    with RawConnection("127.0.0.1", int(sys.argv[1]), timeout=30) as connection:
        connection.request(18, 0, b"")
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            started = time.perf_counter()
            if len(waits) % 2:
                answer = connection.request(18, 0, b"")
            else:
                answer = connection.request(3, 1, b"\0\0\0\0")
            waits.append((time.perf_counter() - started) * 1000)
            if answer is None:
                raise EOFError("the server closed the connection of a client that does no harm")
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
