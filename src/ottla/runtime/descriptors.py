"""How this process shares out its file descriptors (RLIMIT_NOFILE).

A flood of connections must not leave the logs without descriptors: a file that cannot be opened looks like a disk that
fails, and would take its whole log directory offline.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from typing import NamedTuple, Self

from ottla.log.open_files import DEFAULT_OPEN_FILES

SPARE = 512
"""Indexes, checkpoints and snapshots being written, the loop, listening sockets, slices that are still being sent."""


class Descriptors(NamedTuple):
    segments: int
    connections: int

    @classmethod
    def available(cls) -> Self:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return cls(DEFAULT_OPEN_FILES, sys.maxsize)
        segments = min(DEFAULT_OPEN_FILES, soft // 4)
        return cls(segments, soft - segments - min(SPARE, soft // 4))


_CANDIDATES = (1_048_576, 65_536, 10_240)
"""For a system that does not grant its own hard limit: macOS gives a shell 256 of "unlimited" and refuses more than
kern.maxfilesperproc. 10,240 is OPEN_MAX there, what the JVM asks for.
"""


def raise_limit() -> None:
    """Take all that the system grants, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    smaller = [number for number in _CANDIDATES if number > soft and (hard == resource.RLIM_INFINITY or number < hard)]
    for number in (hard, *smaller):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
            return
