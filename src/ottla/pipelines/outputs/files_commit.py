"""The commit object of `ottla-files`: what a version of an application made visible, as JSON with a version of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.model.user_error import UserError

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    name: str
    """Below the folder of the application's staged files."""
    path: str
    """Where readers see it, below the table."""
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesCommit:
    """The commit object of an application."""

    version: int
    files: tuple[StagedFile, ...]
    removed: tuple[str, ...]
    note: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    """The type of each column, as Arrow names it; commits of earlier versions have none."""

    def to_json(self) -> bytes:
        files = [{"name": entry.name, "path": entry.path, "rows": entry.rows} for entry in self.files]
        content = {
            "format": _FORMAT,
            "version": self.version,
            "files": files,
            "removed": self.removed,
            "note": self.note,
            "columns": self.columns,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> FilesCommit:
        content = json.loads(data)
        if content["format"] != _FORMAT:
            raise UserError(
                f"{path} has format {content['format']}, this version of Ottla reads {_FORMAT}: upgrade Ottla"
            )
        return cls(
            version=content["version"],
            files=tuple(StagedFile(**entry) for entry in content["files"]),
            removed=tuple(content["removed"]),
            note=content["note"],
            columns=content.get("columns", {}),
        )
