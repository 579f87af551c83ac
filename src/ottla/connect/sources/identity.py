"""Which file a file is: its inode and the time of its birth, which a rename keeps and a new file in its place does not.

An inode alone is given to the next file as soon as its own is deleted. Python's `os.stat` has no birth time on Linux, so
the C library is asked; where it cannot tell, the inode has to do.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import zlib
from typing import Any

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_SIZE, _BIRTH = 256, 80
HEAD_BYTES = 256


def identity(path: str) -> str:
    """INODE.BIRTH, or INODE; empty when the file is not there."""
    try:
        inode = os.stat(path).st_ino
    except OSError:
        return ""
    born = _birth_ns(path)
    return f"{inode}.{born}" if born else str(inode)


def both(which: str) -> tuple[str, ...]:
    """The names under which a file may have been noted: with its birth, and without."""
    return (which, which.partition(".")[0]) if "." in which else (which,)


def head(path: str, read: int) -> tuple[int, int]:
    """Length and checksum of the first bytes, of those that were read."""
    with open(path, "rb") as file:
        first = file.read(min(read, HEAD_BYTES))
    return len(first), zlib.crc32(first)


@functools.cache
def _statx() -> Any:
    return getattr(ctypes.CDLL(None), "statx", None)


def _birth_ns(path: str) -> int:
    statx = _statx()
    if statx is None:
        return 0
    answer = ctypes.create_string_buffer(_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BIRTH)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
