"""A disk whose directories fail one by one, and whose names a power cut may take back.

A fault of one directory leaves the other directories alone. A directory that hangs answers its syncs at the end of the hang.
Work in a thread waits, and a sync on the event loop stops the whole process until then. With `forgetful`, a rename, a
removal and a new name last only from the next sync of their directory on. The journal of the file system keeps the order
of names: a power cut takes back the last changes, never a change before a change that stays.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.simulation.disk import FakeDisk, FakeFile

if TYPE_CHECKING:
    from ottla.simulation.world import World

KEEPS_ALL_NAMES = 0.3
"""How often a power cut takes no name back."""


class DiskHang(BaseException):
    """The directory does not answer before `until_ms`. No code of the product handles this."""

    def __init__(self, until_ms: float) -> None:
        super().__init__(until_ms)
        self.until_ms = until_ms


class DiskHost(Protocol):
    """The machine that a disk belongs to."""

    world: World
    in_thread: bool
    paused_until: float


class _Change(NamedTuple):
    """A change of names."""

    parents: tuple[str, ...]
    undo: Callable[[], object]
    path: str
    former: FakeFile | None
    """The file that had the path before."""


class FaultyDisk(FakeDisk):
    def __init__(self, dice: random.Random, now_ms: Callable[[], int], host: DiskHost) -> None:
        super().__init__(dice, now_ms)
        self._host = host
        self.full_folders: set[str] = set()
        self.failing_folders: set[str] = set()
        self.failing_once: set[str] = set()
        """The next sync fails, and only that sync."""
        self.hanging: dict[str, float] = {}
        """Folder -> the end of its hang."""
        self.forgetful = False
        self._journals: dict[str, list[_Change]] = {}
        """By file system: each directory of `log.dirs` is one."""

    # ------------------------------------------------------------------------------------------------------------ faults

    def check_write(self, path: str) -> None:
        super().check_write(path)
        if self.full_folders and _below(path, self.full_folders):
            raise OSError(errno.ENOSPC, "the simulated directory is full")
        if self.failing_folders and _below(path, self.failing_folders):
            raise OSError(errno.EIO, "the simulated directory fails")

    def check_sync(self, path: str) -> None:
        super().check_sync(path)
        if self.hanging:
            self._hang(path)
        if self.failing_folders and _below(path, self.failing_folders):
            raise OSError(errno.EIO, "the simulated directory fails")
        if self.failing_once:
            folder = _below(path, self.failing_once)
            if folder is not None:
                self.failing_once.discard(folder)
                raise OSError(errno.EIO, "the simulated sync fails once")

    def _hang(self, path: str) -> None:
        folder = _below(path, self.hanging)
        if folder is None:
            return
        until_ms = self.hanging[folder]
        if until_ms <= self._host.world.now_ms:
            del self.hanging[folder]
        elif self._host.in_thread:
            raise DiskHang(until_ms)
        else:
            self._host.paused_until = max(self._host.paused_until, until_ms)

    def heal(self) -> None:
        for faults in (self.full_folders, self.failing_folders, self.failing_once, self.hanging):
            faults.clear()

    def cut_power(self) -> None:
        if not self.forgetful:
            super().cut_power()
            return
        dice = self._random
        for journal in self._journals.values():
            keeps = len(journal) if dice.random() < KEEPS_ALL_NAMES else dice.randint(0, len(journal))
            for change in reversed(journal[keeps:]):
                change.undo()
        self._journals.clear()
        for file in self.files.values():
            self.restore(file, self.surviving(file))

    def former(self, path: str) -> Iterator[bytes]:
        """What else the path may hold after a power cut."""
        file = self.files.get(path)
        if not self.forgetful and file is not None and not file.synced_name and file.replaces is not None:
            yield file.replaces
        for change in self._journal(path):
            if change.path == path and change.former is not None:
                yield bytes(change.former.data)

    def _journal(self, path: str) -> list[_Change]:
        return self._journals.setdefault(path.split("/", 2)[1], [])

    def wipe(self) -> None:
        super().wipe()
        self._journals.clear()

    def replace_folder(self, folder: str, contents: Mapping[str, bytes]) -> None:
        """Somebody puts other files in the place of the folder's files."""
        self._journal(folder).clear()
        for path in [path for path in self.files if path.startswith(folder + "/")]:
            del self.files[path]
        for path, data in contents.items():
            self.restore(self.files.setdefault(path, FakeFile(self, path)), data)

    # ------------------------------------------------------------------------------------------------------------- names

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        is_new = create and path not in self.files
        file = super().open(path, create=create)
        if is_new:
            self._note(path, partial(self.files.pop, path, None))
        return file

    def write_atomic(self, path: str, data: bytes) -> None:
        super().write_atomic(path, data)
        self._journal(path).clear()

    def make_dirs(self, path: str) -> None:
        if path not in self.folders:
            self._note(path, partial(self.folders.discard, path))
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        file, replaced = self.files.get(source), self.files.get(target)
        if file is not None:
            super().rename(source, target)
            self._note(target, partial(self._rename_back, file, source, target, replaced), source, former=replaced)
            return
        folders = {name for name in self.folders if name == source or name.startswith(source + "/")}
        before = len(self._journal(target))
        super().rename(source, target)  # which renames file by file: one change for the file system
        del self._journal(target)[before:]
        self._note(target, partial(self._rename_folder_back, source, target, folders), source)

    def _rename_back(self, file: FakeFile, source: str, target: str, replaced: FakeFile | None) -> None:
        self.files.pop(target, None)
        file.path = source
        self.files[source] = file
        if replaced is not None:
            self.files[target] = replaced

    def _rename_folder_back(self, source: str, target: str, folders: set[str]) -> None:
        for name in [name for name in self.files if name.startswith(target + "/")]:
            file = self.files.pop(name)
            file.path = source + name[len(target) :]
            self.files[file.path] = file
        self.folders -= {name for name in self.folders if name == target or name.startswith(target + "/")}
        self.folders |= folders

    def remove(self, path: str) -> None:
        file = self.files.get(path)
        if file is not None:
            self._note(path, partial(self.files.__setitem__, path, file), former=file)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        files = {name: file for name, file in self.files.items() if name.startswith(path + "/")}
        folders = {name for name in self.folders if name == path or name.startswith(path + "/")}
        super().remove_tree(path)

        def undo() -> None:
            self.files.update(files)
            self.folders |= folders

        self._note(path, undo)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        journal = self._journal(path)
        for at in range(len(journal) - 1, -1, -1):
            if path in journal[at].parents:
                del journal[: at + 1]
                return

    def _note(
        self, path: str, undo: Callable[[], object], source: str | None = None, *, former: FakeFile | None = None
    ) -> None:
        """`source`: the other name of a rename."""
        if self.forgetful:
            parents = tuple(name.rpartition("/")[0] for name in (path, source) if name is not None)
            self._journal(path).append(_Change(parents, undo, path, former))


def _below(path: str, folders: Iterable[str]) -> str | None:
    return next((folder for folder in folders if path == folder or path.startswith(folder + "/")), None)
