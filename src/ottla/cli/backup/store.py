"""The files of backups: a local folder, or a file system of `ottla.connect.locations`. A file is there whole or not at all."""

from __future__ import annotations

import os
from typing import Any

from ottla.cli.backup.manifest import BackupError, Manifest, manifest_of
from ottla.connect.locations import locate, store_advice

_BACKUPS = "backups"


class BackupStore:
    def __init__(self, text: str) -> None:
        self._location = locate(text)
        self.text = text
        if self._location.is_local:
            os.makedirs(self._location.uri, mode=0o700, exist_ok=True)
        self._files, self._root = self._location.make_folder()

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
        from pyarrow import fs

        selector: Any = fs.FileSelector(f"{self._root}/{_BACKUPS}", allow_not_found=True)
        try:
            names = sorted(row.base_name for row in self._files.get_file_info(selector))
        except OSError as problem:
            raise self._failure(_BACKUPS, problem) from problem
        return [self._manifest(name.removesuffix(".json")) for name in names if name.endswith(".json")]

    def manifest(self, name: str | None) -> Manifest:
        """The newest without a name. Raises BackupError if there is none."""
        manifests = self.manifests()
        chosen = [manifest for manifest in manifests if name in (None, manifest.name)]
        if not chosen:
            names = ", ".join(manifest.name for manifest in manifests) or "none"
            raise BackupError(f"{self.text} has no backup {name or ''}".rstrip() + f"; backups are {names}")
        return chosen[-1]

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
