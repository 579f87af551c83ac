"""A disk that a test makes full: every write fails with ENOSPC until the test makes room."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.env.seams import File, Storage


class DiskSpace:
    """Whether the disk of one node is full."""

    def __init__(self) -> None:
        self.is_full = False

    def need(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class FillableStorage:
    """A storage that passes every call on, and refuses writes while the disk is full."""

    def __init__(self, storage: Storage, space: DiskSpace) -> None:
        self._storage = storage
        self._space = space

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open(self, path: str, *, create: bool = False) -> FillableFile:
        if create:
            self._space.need(path)
        return FillableFile(self._storage.open(path, create=create), self._space)

    def write_atomic(self, path: str, data: bytes) -> None:
        self._space.need(path)
        self._storage.write_atomic(path, data)

    def make_dirs(self, path: str) -> None:
        self._space.need(path)
        self._storage.make_dirs(path)


class FillableFile:
    __slots__ = ("_file", "_space", "pread")

    def __init__(self, file: File, space: DiskSpace) -> None:
        self._file = file
        self._space = space
        self.pread = file.pread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._space.need(self._file.path)
        self._file.pwrite(data, position)
