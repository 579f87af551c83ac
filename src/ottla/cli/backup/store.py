"""The files of backups: a local folder, or a file system of `ottla.connect.locations`. A file is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ottla.cli.backup.manifest import BackupError, Manifest, manifest_of
from ottla.connect.locations import locate, store_advice
from ottla.runtime.disk import DiskStorage

_BACKUPS = "backups"
_LOCK = ".lock"


class BackupStore:
    def __init__(self, text: str) -> None:
        self._location = locate(text)
        self.text = text
        self._files, self._root = self._location.file_system()

    def make(self) -> None:
        """Only a new backup makes the folder: to read a backup under a wrong name leaves nothing behind."""
        if self._location.is_local:
            os.makedirs(self._location.uri, mode=0o700, exist_ok=True)
        self._location.make_folder()

    def read(self, name: str) -> bytes | None:
        """None if the file does not exist."""
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise self._failure(name, problem) from problem

    def size(self, name: str) -> int | None:
        """None if the file does not exist."""
        try:
            size: int | None = self._files.get_file_info(f"{self._root}/{name}").size
        except OSError as problem:
            raise self._failure(name, problem) from problem
        return size

    def write(self, name: str, content: bytes) -> None:
        path = f"{self._root}/{name}"
        partial = f"{path}.partial" if self._location.is_local else path  # an object appears when its stream closes
        try:
            if self._location.is_local:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with self._files.open_output_stream(partial) as stream:
                stream.write(content)
            if self._location.is_local:
                _sync(partial)
                os.replace(partial, path)
        except OSError as problem:
            raise self._failure(name, problem) from problem

    def save(self, manifest: Manifest) -> None:
        self.write(f"{_BACKUPS}/{manifest.name}.json", manifest.to_json())

    def manifests(self) -> list[Manifest]:
        """The oldest first."""
        return [self._manifest(name) for name in self._names()]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Raises BackupError if a different process makes a backup in the same local folder."""
        if not self._location.is_local:
            yield
            return
        release = DiskStorage().lock(f"{self._root}/{_LOCK}")
        if release is None:
            raise BackupError(f"{self.text} is in use: another `ottla backup create` writes there")
        try:
            yield
        finally:
            release()

    def _names(self) -> list[str]:
        """The oldest first."""
        from pyarrow import fs

        selector: Any = fs.FileSelector(f"{self._root}/{_BACKUPS}", allow_not_found=True)
        try:
            files = [row.base_name for row in self._files.get_file_info(selector)]
        except OSError as problem:
            raise self._failure(_BACKUPS, problem) from problem
        # Without the suffix: `NAME-1` comes after `NAME`, but `NAME-1.json` before `NAME.json`.
        return sorted(file.removesuffix(".json") for file in files if file.endswith(".json"))

    def manifest(self, name: str | None) -> Manifest:
        """The newest without a name. Raises BackupError if there is none. A damaged manifest of another backup is not read."""
        names = self._names()
        if not names or (name is not None and name not in names):
            present = ", ".join(names) or "none"
            raise BackupError(f"{self.text} has no backup {name or ''}".rstrip() + f"; backups are {present}")
        return self._manifest(names[-1] if name is None else name)

    def _manifest(self, name: str) -> Manifest:
        return manifest_of(self.read(f"{_BACKUPS}/{name}.json") or b"", f"{self.text}/{_BACKUPS}/{name}.json")

    def _failure(self, name: str, problem: OSError) -> BackupError:
        return BackupError(f"{self.text}/{name}: {store_advice(problem) or problem}")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
