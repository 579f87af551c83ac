"""Servers that are built from Go modules once, into the user's cache folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.kafka_jars import Unavailable, cache_dir, file_lock

_RETRY_AFTER_S = 1800


def go_binary(name: str, version: str, build: Callable[[str, Path], str]) -> Path:
    """The binary; Unavailable says why there is none. `build` gets the path of go and a folder, and returns the problem or
    an empty text. A failed build is tried again after half an hour.
    """
    folder = cache_dir().with_name(f"ottla-{name}-{version}")
    binary, failed = folder / name, folder / "unreachable"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"no {name} in the cache and no go on PATH to build it")
    with file_lock(folder.with_name(folder.name + ".lock")):
        if binary.exists():
            return binary
        if failed.exists() and time.time() - failed.stat().st_mtime < _RETRY_AFTER_S:
            raise Unavailable(failed.read_text())
        folder.mkdir(exist_ok=True)
        problem = build(go, folder)
        if problem or not binary.exists():
            failed.write_text(f"no {name}: {problem or 'go made no binary'}")
            raise Unavailable(failed.read_text())
    return binary
