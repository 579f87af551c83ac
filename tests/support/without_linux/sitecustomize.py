"""Takes away from this interpreter, before any program runs in it, what macOS does not have. Standard library only."""

from __future__ import annotations

import builtins
import errno
import fcntl
import functools
import importlib
import io
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = "OTTLA_TEST_WITHOUT"
F_FULLFSYNC = 51
OPEN_MAX = 10_240
FULL_SYNCS: list[int] = []
_OPENERS = ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat")
_CAPABILITIES = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids)


def remove_names(missing: dict[str, list[str]]) -> None:
    for module_name, names in missing.items():
        module = importlib.import_module(module_name)
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def hide_proc() -> None:
    builtins.open = io.open = _without_proc(io.open)
    for name in _OPENERS:
        original = getattr(os, name)
        replacement = _without_proc(original)
        setattr(os, name, replacement)
        for capability in _CAPABILITIES:
            if original in capability:
                capability.add(replacement)


def _without_proc(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if not isinstance(path, int) and (os.fsdecode(path) + "/").startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return original(path, *arguments, **named)

    return call


def add_full_sync() -> None:
    """Here it is an fsync; `FULL_SYNCS` has the descriptors."""
    original: Any = fcntl.fcntl

    def call(fd: Any, command: int, argument: Any = 0) -> Any:
        if command != F_FULLFSYNC:
            return original(fd, command, argument)
        FULL_SYNCS.append(fd)
        os.fsync(fd)
        return 0

    setattr(fcntl, "fcntl", call)  # noqa: B010 - mypy would compare its overloads
    setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC)  # noqa: B010 - mypy knows no such name on Linux


def limit_open_files() -> None:
    """The hard limit is infinite, and yet the system grants no more than OPEN_MAX."""
    get, put, which = resource.getrlimit, resource.setrlimit, resource.RLIMIT_NOFILE

    def getrlimit(kind: int, /) -> tuple[int, int]:
        soft, hard = get(kind)
        return (soft, resource.RLIM_INFINITY) if kind == which else (soft, hard)

    def setrlimit(kind: int, limits: tuple[int, int], /) -> None:
        soft, hard = limits
        if kind == which:
            if soft > OPEN_MAX or soft == resource.RLIM_INFINITY:
                raise ValueError("current limit exceeds maximum limit")
            hard = get(kind)[1]
        put(kind, (soft, hard))

    resource.getrlimit, resource.setrlimit = getrlimit, setrlimit


def follow_children() -> None:
    """A child process whose environment the caller has made itself gets this folder too."""
    import subprocess  # now: it looks at what the system has when it is imported

    original = subprocess.Popen.__init__

    @functools.wraps(original)
    def start(self: Any, *arguments: Any, **named: Any) -> None:
        own = named.get("env")
        if own is not None:
            path = os.pathsep.join(filter(None, (str(Path(__file__).parent), own.get("PYTHONPATH"))))
            named["env"] = {**own, "PYTHONPATH": path, NAMES: os.environ[NAMES]}
        original(self, *arguments, **named)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]


def run_the_next_one() -> None:
    """A test may have a sitecustomize of its own, which this one hides."""
    import runpy

    candidates = [Path(folder, "sitecustomize.py").resolve() for folder in sys.path]
    found = next((path for path in candidates if path.is_file() and path != Path(__file__).resolve()), None)
    if found is not None:
        runpy.run_path(str(found))


if NAMES in os.environ:
    remove_names(json.loads(os.environ[NAMES]))
    hide_proc()
    add_full_sync()
    limit_open_files()
    follow_children()
    run_the_next_one()
