"""What a process costs, read from /proc: CPU seconds and memory of the process and all its descendants.

CPU time is steadier than wall time on a shared machine, so the targets on it are the ones to trust first.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1_000_000
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of a process


def _stat(pid: int) -> list[str]:
    # The command name may hold spaces and parentheses; everything after its last ")" is plain.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for path in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                todo += [int(child) for child in path.read_text().split()]
            except OSError:  # the thread ended meanwhile
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the family, with the waited-for children of each member.

    A living process has a clock in nanoseconds (as clock_getcpuclockid(3) names it); /proc has ticks of 10 ms, which
    are a tenth of what a short row takes, and are read only for children that ended.
    """
    seconds = 0.0
    for member in family(pid):
        try:
            seconds += time.clock_gettime(~member << 3 | _CPU_CLOCK) + _of_ended_children(member)
        except OSError:
            continue
    return seconds


def _of_ended_children(pid: int) -> float:
    return sum(int(value) for value in _stat(pid)[13:15]) / _TICKS


def rss_mb(pid: int) -> float:
    return sum(_kib(Path(f"/proc/{member}/status"), "VmRSS:") for member in family(pid)) * 1024 / _MB


def pss_mb(pid: int) -> float:
    return sum(_kib(Path(f"/proc/{member}/smaps_rollup"), "Pss:") for member in family(pid)) * 1024 / _MB


def _kib(path: Path, name: str) -> int:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def wait_until_quiet(pids: list[int], *, share: float = 0.2, patience_s: float = 5.0) -> None:
    """Wait until the processes together use less than `share` of a core, or until patience ends."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        before, began = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(0.25)
        if (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began) < share:
            return
