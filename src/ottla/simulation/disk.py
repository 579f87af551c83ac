"""A fake disk behind `ottla.env.seams.Storage`: a power cut may lose or tear unsynced bytes.

An unsynced write may survive wholly, in part, or as garbage. A new file whose directory was not synced may be gone.
Then every later name is gone too, because a file system with a journal keeps the order of names. `write_atomic` is all
or nothing, as its contract requires. A disk can be full (no write succeeds) or failing (no sync succeeds); both raise
OSError.
"""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FakeFile:
    __slots__ = ("_disk", "data", "path", "replaces", "synced", "synced_name")

    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.data = bytearray()
        self.synced = b""
        self.synced_name = False
        self.replaces: bytes | None = None
        """The bytes on disk of the file that an unsynced rename replaced."""

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self.data[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        self._disk.check_write(self.path)
        view = bytes(data)
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(view)] = view

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        self._disk.check_write(self.path)
        del self.data[size:]

    def sync(self) -> None:
        self._disk.check_sync(self.path)
        self.synced = bytes(self.data)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def close(self) -> None:
        """Nothing to release; the data stays, synced or not."""


class FakeDisk:
    def __init__(self, dice: random.Random, now_ms: Callable[[], int]) -> None:
        self._random = dice
        self._now_ms = now_ms
        self.files: dict[str, FakeFile] = {}
        self.folders: set[str] = set()
        self._modified: dict[str, int] = {}
        self.full = False
        self.failing = False

    # ------------------------------------------------------------------------------------------------------------ faults

    def check_write(self, path: str) -> None:
        del path
        if self.full:
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def check_sync(self, path: str) -> None:
        del path
        if self.failing:
            raise OSError(errno.EIO, "the simulated disk fails")

    def cut_power(self) -> None:
        """Lose the power: the disk keeps only what survives."""
        dice = self._random
        lost = False
        for path, file in list(self.files.items()):
            if not file.synced_name and (lost or dice.random() < 0.5):
                lost = True
                if file.replaces is None:
                    del self.files[path]
                else:
                    self.restore(file, file.replaces)
                continue
            self.restore(file, self.surviving(file))

    def surviving(self, file: FakeFile) -> bytes:
        """The synced bytes, and a part of the others, which may be damaged."""
        dice = self._random
        kept = file.synced
        if bytes(file.data[: len(kept)]) == kept:
            tail = bytes(file.data[len(kept) :])
            survived = tail[: dice.randint(0, len(tail))]
            if survived and dice.random() < 0.5:
                survived = self._damaged(survived)
            kept += survived
        return kept

    @staticmethod
    def restore(file: FakeFile, content: bytes) -> None:
        file.data = bytearray(content)
        file.synced = content
        file.synced_name = True
        file.replaces = None

    def _damaged(self, data: bytes) -> bytes:
        """Garbage of the same size (blocks that were never written), or the data with one changed byte."""
        dice = self._random
        if dice.random() < 0.5:
            return dice.randbytes(len(data))
        place = dice.randrange(len(data))
        return data[:place] + bytes([data[place] ^ (1 << dice.randrange(8))]) + data[place + 1 :]

    def wipe(self) -> None:
        self.files.clear()
        self.folders.clear()

    # ----------------------------------------------------------------------------------------------------------- storage

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        file = self.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.check_write(path)
            file = self.files[path] = FakeFile(self, path)
            self._modified[path] = self._now_ms()
        return file

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.open(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check_write(path)
        self.check_sync(path)
        file = self.files[path] = FakeFile(self, path)
        file.data = bytearray(data)
        file.synced = bytes(data)
        file.synced_name = True
        self._modified[path] = self._now_ms()

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def is_dir(self, path: str) -> bool:
        return path in self.folders or any(name.startswith(path + "/") for name in self.files)

    def size(self, path: str) -> int:
        return len(self.open(path).data)

    def modified_ms(self, path: str) -> int:
        return self._modified.get(path, 0)

    def list_dir(self, path: str) -> Sequence[str]:
        head = path.rstrip("/") + "/"
        names = (*self.files, *self.folders)
        return sorted({name[len(head) :].split("/", 1)[0] for name in names if name.startswith(head)})

    def make_dirs(self, path: str) -> None:
        self.folders.add(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder with its contents."""
        file = self.files.pop(source, None)
        if file is not None:
            replaced = self.files.get(target)
            if replaced is not None and file.replaces is None:
                file.replaces = replaced.synced if replaced.synced_name else replaced.replaces
            file.path = target
            self.files[target] = file
            return
        if not self.is_dir(source):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        for name in [name for name in self.files if name.startswith(source + "/")]:
            self.rename(name, target + name[len(source) :])
        for name in [name for name in self.folders if name == source or name.startswith(source + "/")]:
            self.folders.discard(name)
            self.folders.add(target + name[len(source) :])
        self.folders.add(target)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.files if name.startswith(path + "/")]:
            del self.files[name]
        self.folders -= {name for name in self.folders if name == path or name.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        self.check_sync(path)
        for name, file in self.files.items():
            if name.rpartition("/")[0] == path:
                file.synced_name = True

    def disk_space(self, path: str) -> tuple[int, int]:
        del path
        return 1 << 40, 0 if self.full else 1 << 39

    def lock(self, path: str) -> Callable[[], None] | None:
        del path
        return lambda: None
