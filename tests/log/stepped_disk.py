"""A fake disk on which a process dies, or an operation fails, before its n-th change; and the power may go with it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ottla.simulation.disk import FakeDisk

NOW = 1_700_000_000_000


class Killed(BaseException):
    """Nothing may catch it, and nothing reaches the disk after it."""


class SteppedDisk(FakeDisk):
    """Counts every write, sync, rename and removal from `arm` on.

    A folder's new name is on disk once its parent directory is synced; a power cut may take it back before that.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(random.Random(seed), lambda: NOW)
        self._left = -1
        self._error: OSError | None = None
        self._armed = False
        self._dead = False
        self.steps = 0
        self.last = ""
        self._unsynced_renames: list[tuple[str, str]] = []

    def arm(self, steps: int, error: OSError | None = None) -> None:
        """Let `steps` changes happen, then raise `error` once, or Killed for good."""
        self._left, self._error, self._armed, self.steps = steps, error, True, 0

    def disarm(self) -> None:
        """The next process starts, or the disk is well again."""
        self._armed = self._dead = False

    def step(self, what: str = "write") -> None:
        if self._dead:
            raise Killed
        if not self._armed:
            return
        self.steps += 1
        self._left -= 1
        if self._left == -1:
            self.last = what
            if self._error is not None:
                raise self._error
            self._dead = True
            raise Killed

    @property
    def struck(self) -> bool:
        return self._left < 0

    def check_write(self, path: str) -> None:
        self.step()
        super().check_write(path)

    def check_sync(self, path: str) -> None:
        self.step("sync")
        super().check_sync(path)

    def rename(self, source: str, target: str) -> None:
        folder = source not in self.files
        if not source.startswith("#"):
            self.step(f"rename {source} {target}")
        if folder:
            self._unsynced_renames.append((source, target))
            self._rename_folder(source, target)
        else:
            super().rename(source, target)

    def _rename_folder(self, source: str, target: str) -> None:
        for name in [name for name in self.files if name.startswith(source + "/")]:
            super().rename(name, target + name[len(source) :])
        self.folders.discard(source)
        self.folders.add(target)

    def remove(self, path: str) -> None:
        if path in self.files:
            self.step(f"remove {path}")
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self._unsynced_renames = [pair for pair in self._unsynced_renames if pair[0].rpartition("/")[0] != path]

    def write_atomic(self, path: str, data: bytes) -> None:
        super().write_atomic(path, data)
        parent = path.rpartition("/")[0]
        self._unsynced_renames = [pair for pair in self._unsynced_renames if pair[0].rpartition("/")[0] != parent]

    def power_cut(self, directories: Sequence[str]) -> None:
        """As `cut_power`; in `directories` also the folder names go back that were not synced."""
        for source, target in reversed(self._unsynced_renames):
            if source.rpartition("/")[0] in directories:
                self._rename_folder(target, source)
        self._unsynced_renames.clear()
        self.cut_power()

    def folders_of(self, partition: str) -> list[str]:
        heads = {"/".join(name.split("/")[:4]) for name in self.files}
        return sorted(head for head in heads if f"/{partition}" in head)
