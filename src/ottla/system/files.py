"""Syncing a file to the disk, bytes that have a path but no file, and the birth time of a file."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NO_FULL_SYNC = frozenset({errno.EINVAL, errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system answers that has no F_FULLFSYNC (SMB, some FUSE volumes). Every other error is a failing disk."""

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_BYTES, _STATX_BIRTH = 256, 80


def sync_data(fd: int) -> None:
    """On return the data of the file survive a power cut; of its metadata only what is needed to read them."""
    if not _full_sync(fd):
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_all(fd: int) -> None:
    """On return the file or the directory survives a power cut, with all its metadata."""
    if not _full_sync(fd):
        os.fsync(fd)


def sync_path(path: str) -> None:
    """On return the file, or the names in the folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_all(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folder: str, root: str) -> None:
    """The folder, those above it up to `root`, and the name of `root`."""
    while len(folder) > len(root):
        sync_path(folder)
        folder = os.path.dirname(folder)
    sync_path(root)
    sync_path(os.path.dirname(root))


def _full_sync(fd: int) -> bool:
    """macOS: its fsync leaves the data in the cache of the drive, and F_FULLFSYNC empties that cache too, as Java's
    `FileChannel.force` does there. Returns False where the system or the file system has no such call.
    """
    command: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        return False
    return True


@contextmanager
def memory_file(data: bytes) -> Iterator[str | None]:
    """A path under which this process reads `data` out of its own memory; None where the system has no such files."""
    create: Any = getattr(os, "memfd_create", None)
    if create is None:
        yield None
        return
    descriptor = create("ottla")
    try:
        path = f"/proc/self/fd/{descriptor}"
        if not os.path.exists(path):  # a container without /proc
            yield None
            return
        os.write(descriptor, data)
        yield path
    finally:
        os.close(descriptor)


def birth_ns(path: str) -> int:
    """When the file was created, in nanoseconds since 1970; 0 where the system or file system does not report it."""
    status = os.stat(path)
    seconds: float | None = getattr(status, "st_birthtime", None)  # macOS and the BSDs
    return int(seconds * 1_000_000_000) if seconds is not None else _statx_birth_ns(path)


def _statx_birth_ns(path: str) -> int:
    """On Linux, `os.stat` has no birth time; the C library has it."""
    statx = _statx()
    if statx is None:
        return 0
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _STATX_BIRTH)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


@functools.cache
def _statx() -> Any:
    return getattr(ctypes.CDLL(None), "statx", None)
