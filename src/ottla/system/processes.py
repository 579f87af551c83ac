"""Processes of this machine: from /proc where there is one, else from `ps` and `lsof`, which macOS brings along."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = "/proc"
_STATE, _STARTED_TICKS = 0, 19
"""Fields of /proc/PID/stat, counted after the name of the program, which may itself contain spaces and brackets."""


def own_command(*arguments: str, module: str = "ottla.cli.main") -> list[str]:
    """`ottla ARGUMENTS`, or another module of ours, with this very Python. Every child of our own is started so.

    `-P` keeps the working directory off the path of modules: with `-m` alone a file there, `click.py` for one, would run
    inside the child. What `ps` shows to everybody is these words: a secret belongs into a file or the environment.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


class Process(NamedTuple):
    pid: int
    words: list[str]
    """The command line. From `ps`, an argument with a space in it is two words."""


def started_at(pid: int) -> float | None:
    """When the process started, in seconds since 1970; None where the system does not report it."""
    fields = _stat(pid)
    if fields is None:
        return _started_by_ps(pid)
    try:
        with open(f"{_PROC}/stat", encoding="ascii") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
        return booted + int(fields[_STARTED_TICKS]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def is_zombie(pid: int) -> bool:
    """The process has ended, and its parent has not read its exit code yet."""
    fields = _stat(pid)
    state = fields[_STATE] if fields else _output("ps", "-o", "stat=", "-p", str(pid)).strip()
    return state.startswith("Z")


def own_processes() -> Iterator[Process]:
    """The processes of this user, as far as they still run while this looks at them."""
    if not os.path.isdir(f"{_PROC}/self"):
        yield from _processes_by_ps()
        return
    for folder in Path(_PROC).glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
                yield Process(int(folder.name), words)
        except OSError:
            continue  # the process has ended


def working_directory(pid: int) -> str | None:
    """The folder that relative paths of the process start from; None where the system does not report it."""
    try:
        return os.readlink(f"{_PROC}/{pid}/cwd")
    except OSError:
        fields = _output("lsof", "-a", "-p", str(pid), "-d", "cwd", "-Fn").splitlines()
        return next((field[1:] for field in fields if field.startswith("n/")), None)


async def resident_bytes() -> int | None:
    """The memory of this process; None where the system does not report it. The loop does not wait for `ps`."""
    resident = _resident_by_proc()
    return await asyncio.to_thread(_resident_by_ps) if resident is None else resident


def _resident_by_proc() -> int | None:
    try:
        with open(f"{_PROC}/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def _resident_by_ps() -> int | None:
    kibibytes = _output("ps", "-o", "rss=", "-p", str(os.getpid()), timeout_s=1).strip()
    return int(kibibytes) * 1024 if kibibytes.isdigit() else None


def open_descriptors() -> int | None:
    """The number of open file descriptors of this process."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return None


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _started_by_ps(pid: int) -> float | None:
    """From the elapsed time, [[DD-]HH:]MM:SS; POSIX has no field for the start itself."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", _output("ps", "-o", "etime=", "-p", str(pid)).strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return time.time() - (((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _processes_by_ps() -> Iterator[Process]:
    for line in _output("ps", "-U", str(os.getuid()), "-ww", "-o", "pid=", "-o", "args=").splitlines():
        pid, *words = line.split()
        yield Process(int(pid), words)


def _output(*command: str, timeout_s: float = 10) -> str:
    """What a program of the system prints; empty where there is no such program, or it prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603 - our own words
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
