"""Files and folders as a source: text lines, JSON lines and CSV (also of a file that is being written), and Parquet.

The place is, per file, how far it was read: bytes for lines (only whole lines count), rows for Parquet. A file is known
by its path and inode, so a rotated log is read from its beginning.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.connect.config import need, number
from ottla.connect.connector import Change, Place, Source
from ottla.tables.topics import TableError

FORMATS = ("text", "json", "csv", "parquet")


class FileSource(Source):
    """Settings: file (a path or a pattern), topic, format, batch.size."""

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._pattern = need(config, "file")
        self._topic = need(config, "topic")
        self._format = config.get("format", "text")
        self._most = number(config, "batch.size", 5000)
        if self._format not in FORMATS:
            raise TableError(f"format is one of {', '.join(FORMATS)}, not {self._format!r}")

    def poll(self, after: Place | None) -> Sequence[Change]:
        places: Place = dict(after or {})
        found: list[Change] = []
        for path in self._files():
            if len(found) >= self._most:
                break
            try:
                name = f"{os.path.abspath(path)}#{os.stat(path).st_ino}"
                found += self._read(path, name, places, self._most - len(found))
            except OSError as problem:
                raise TableError(f"{path} cannot be read: {problem.strerror or problem}") from problem
        return found

    def _files(self) -> list[str]:
        if os.path.isdir(self._pattern):
            return sorted(
                one.path for one in os.scandir(self._pattern) if one.is_file() and not one.name.startswith(".")
            )
        return sorted(glob.glob(self._pattern))

    def _read(self, path: str, name: str, places: Place, most: int) -> list[Change]:
        begin = int(places.get(name, 0))
        if self._format == "parquet":
            import pyarrow.parquet as pq

            rows = pq.read_table(path).slice(begin, most).to_pylist()
            return [self._change(row, places, name, begin + number + 1) for number, row in enumerate(rows)]
        found: list[Change] = []
        with open(path, "rb") as file:
            header: list[str] = []
            if self._format == "csv":
                first = file.readline()
                header = next(csv.reader([first.decode("utf-8-sig", errors="replace")]), [])
                begin = max(begin, len(first))
            file.seek(begin)
            for line in file:
                if not line.endswith(b"\n") or len(found) >= most:
                    break  # a line that is still being written waits
                begin += len(line)
                found.append(self._change(self._value(line, header), places, name, begin))
        return found

    def _value(self, line: bytes, header: list[str]) -> Any:
        text = line.decode(errors="replace").rstrip("\r\n")
        if self._format == "text":
            return text
        if self._format == "json":
            try:
                return json.loads(text)
            except ValueError:
                return text  # the converter or the dead letters decide
        return dict(zip(header, next(csv.reader(io.StringIO(text)), []), strict=False))

    def _change(self, value: Any, places: Place, name: str, end: int) -> Change:
        places[name] = end
        return Change(topic=self._topic, value=value, place=dict(places))
