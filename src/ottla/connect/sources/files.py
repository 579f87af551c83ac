"""Files and folders as a source: text lines, JSON lines and CSV (also of a file that is being written), and Parquet.

The place is, per file, how far it was read, with a checksum of the bytes at its beginning. A file is identified by its
inode and birth. Reading of a renamed file continues at its position: the last lines of a rotated log are read even if
the pattern no longer matches its name. A file that was emptied or replaced is read from its beginning.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.connect.config import need, number
from ottla.connect.connector import Change, Place, Source
from ottla.connect.sources.identity import HEAD_BYTES, both, head, identity
from ottla.connect.sources.records import FORMATS, records
from ottla.model.user_error import UserError

_MOST_BYTES = 64 << 20
"""Of the values of one poll, about: 5,000 rows of a file of 1 KB may be 5 GB."""
_KEPT = 1000
"""Places of so many files are kept after the files are gone: they may come back."""


class FileSource(Source):
    """Settings: file (a path or a pattern), topic, format, batch.size, incomplete.line."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._pattern = need(config, "file")
        self._topic = need(config, "topic")
        self._format = config.get("format", "text")
        self._most = number(config, "batch.size", 5000)
        if self._format not in FORMATS:
            raise UserError(f"format is one of {', '.join(FORMATS)}, not {self._format!r}")
        last = config.get("incomplete.line", "wait")
        if last not in {"wait", "take"}:
            raise UserError(f"incomplete.line is wait or take, not {last!r}")
        self._take_last = last == "take"
        self._open: tuple[str, Iterator[tuple[Any, int]], int] | None = None
        """The file in whose middle the last poll ended."""
        self._room = _MOST_BYTES
        """Bytes that this poll may still take."""
        self._quiet: dict[str, tuple[str, int, int]] = {}
        """Files that had nothing new, as they were then: identity, size and time."""

    def poll(self, after: Place | None) -> Sequence[Change]:
        places: Place = dict(after or {})
        names = {_which(place_name): place_name for place_name in places}
        changes: list[Change] = []
        self._room = _MOST_BYTES
        for path in self._files(places, names):
            if len(changes) >= self._most or self._room <= 0:
                break
            try:
                changes += self._read(path, places, names, self._most - len(changes))
            except FileNotFoundError:
                continue  # it went between the listing and now
            except OSError as problem:
                raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from problem
        if changes:
            changes[-1].place = places
        return changes

    def _files(self, places: Place, names: dict[str, str]) -> list[str]:
        """Files that match the pattern; before them, files that matched once and were renamed since."""
        if os.path.isdir(self._pattern):
            named = sorted(
                entry.path for entry in os.scandir(self._pattern) if entry.is_file() and not entry.name.startswith(".")
            )
        else:
            named = sorted(glob.glob(self._pattern))
        there = {which for path in named for which in both(identity(path))}
        gone = {which: place_name for which, place_name in names.items() if which not in there}
        moved: dict[str, str] = {}
        for folder in {os.path.dirname(place_name.rpartition("#")[0]) for place_name in gone.values()}:
            for path in _entries(folder):
                moved |= {which: path for which in both(identity(path)) if which in gone}
        lost = [place_name for which, place_name in gone.items() if which not in moved]
        for place_name in lost[:-_KEPT]:
            del places[place_name]
        return sorted(set(moved.values())) + named

    def _read(self, path: str, places: Place, names: dict[str, str], most: int) -> list[Change]:
        which = identity(path)
        name = f"{os.path.abspath(path)}#{which}"
        place_name = next((names[alias] for alias in both(which) if alias in names), None)
        seen = os.stat(path)
        now = which, seen.st_size, seen.st_mtime_ns
        if self._quiet.get(path) == now:
            return []
        begin = self._begin(path, seen.st_size, places.get(place_name) if place_name is not None else None)
        if self._open is not None and self._open[0] == name and self._open[2] == begin:
            rows = self._open[1]
        else:
            rows = records(path, self._format, begin, take_last=self._take_last)
        self._open = None
        changes: list[Change] = []
        for value, behind in rows:
            changes.append(Change(topic=self._topic, value=value))
            begin = behind
            self._room -= _weight(value)
            if len(changes) >= most or self._room <= 0:
                self._open = name, rows, begin
                break
        if changes:
            if place_name is not None:
                places.pop(place_name, None)
            names[which] = name
            places[name] = [begin, *head(path, begin if self._format != "parquet" else HEAD_BYTES)]
        else:
            self._quiet[path] = now
        return changes

    def _begin(self, path: str, size: int, place: Any) -> int:
        """How far this file was read; 0 when it was emptied since."""
        if place is None:
            return 0
        at, *noted = [place] if isinstance(place, int) else place  # a number was kept before there were checksums
        shorter = self._format != "parquet" and size < at
        changed = bool(noted) and head(path, int(noted[0])) != tuple(noted)
        return 0 if shorter or changed else int(at)


def _weight(value: Any) -> int:
    """About the bytes of a value in memory."""
    weight, stack = 0, [value]
    while stack:
        part = stack.pop()
        weight += 64
        if isinstance(part, str | bytes):
            weight += len(part)
        elif isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return weight


def _which(place_name: str) -> str:
    return place_name.rpartition("#")[2]


def _entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
