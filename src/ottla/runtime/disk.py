"""The real disk behind `ottla.env.seams.Storage`: thin calls on os, nothing cached.

Files are readable by their owner and its group (0640, folders 0750; backups often run as a member of the group). The
umask can only remove permissions. A file of keys is readable by its owner alone, whatever the umask is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.system.files import sync_all, sync_data

if TYPE_CHECKING:
    from typing_extensions import Buffer


_FILE_MODE = 0o640
_FOLDER_MODE = 0o750
_KEY_MODE = 0o600
_KEY_FILES = frozenset({"encryption-keys"})


class DiskFile:
    """Closes itself when nothing refers to it any more, so that an answer in progress keeps its file open."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        missing = length - len(data)
        while missing > 0:
            data = os.pread(self._fd, missing, position + length - missing)
            if not data:
                break
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        length = len(view)
        written = os.pwrite(self._fd, view, position)
        while written < length:
            written += os.pwrite(self._fd, view[written:], position + written)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        sync_data(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class DiskStorage:
    """Stateless except for the locks of this process; one instance serves every log directory."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DiskFile(path, os.open(path, flags, _FILE_MODE))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        private = os.path.basename(path) in _KEY_FILES
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(temporary, flags, _KEY_MODE if private else _FILE_MODE), "wb") as file:
            if private:
                os.fchmod(file.fileno(), _KEY_MODE)  # a file that a crash left may have wider permissions
            file.write(data)
            file.flush()
            sync_all(file.fileno())
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_dir(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        _make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_all(fd)
        finally:
            os.close(fd)

    def disk_space(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def lock(self, path: str) -> Callable[[], None] | None:
        """A lock against other processes, and against a second node in this process, which a POSIX lock does not
        detect.
        """
        if _identity(path) in _LOCKED_HERE:
            return None  # before the file is opened: to close it again would release the lock that this process has
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            # Java's FileChannel.tryLock is a POSIX record lock: lockf keeps us and a real Kafka apart.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        identity = _identity(path)
        _LOCKED_HERE.add(identity)

        def release() -> None:
            _LOCKED_HERE.discard(identity)
            os.close(fd)

        return release


def _make_dirs(path: str) -> None:
    """As os.makedirs, which gives only the last folder its mode."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_dirs(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _FOLDER_MODE)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


_LOCKED_HERE: set[tuple[int, int] | None] = set()


def _identity(path: str) -> tuple[int, int] | None:
    """The identity of the file behind the path, whatever its name; None if there is no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
