"""Which file a file is: its inode and the time of its birth, which a rename keeps and a new file in its place does not.

An inode alone is given to the next file as soon as its own is deleted. Where the file system has no birth times, the
inode has to do.
"""

from __future__ import annotations

import os
import zlib

from ottla.system.files import birth_ns

HEAD_BYTES = 256


def identity(path: str) -> str:
    """INODE.BIRTH, or INODE; empty when the file is not there."""
    try:
        inode, born = os.stat(path).st_ino, birth_ns(path)
    except OSError:
        return ""
    return f"{inode}.{born}" if born else str(inode)


def both(which: str) -> tuple[str, ...]:
    """The names under which a file may have been noted: with its birth, and without."""
    return (which, which.partition(".")[0]) if "." in which else (which,)


def head(path: str, read: int) -> tuple[int, int]:
    """Length and checksum of the first bytes, of those that were read."""
    with open(path, "rb") as file:
        first = file.read(min(read, HEAD_BYTES))
    return len(first), zlib.crc32(first)
