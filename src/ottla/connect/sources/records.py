"""The records of one file from a place on: lines, JSON lines, CSV and Parquet. Only whole records count.

A reader gives (value, place behind it): bytes for lines, rows for Parquet. The end of a file that is still being written
waits: a line without its newline, a quoted CSV field that is not closed, a Parquet file without its footer.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, BinaryIO

from ottla.model.user_error import UserError
from ottla.payloads.json_text import read_json

FORMATS = ("text", "json", "csv", "parquet")
_FOOTER = b"PAR1"
_LONGEST_FIELD = 1 << 28
EXTRA = "_extra"
"""Fields of a CSV row beyond those that the header names."""


def records(path: str, form: str, begin: int, *, take_last: bool) -> Iterator[tuple[Any, int]]:
    """`take_last`: the last line counts without its newline."""
    if form == "parquet":
        yield from _parquet_rows(path, begin)
        return
    with open(path, "rb") as file:
        yield from (
            _csv_rows(file, begin, take_last=take_last)
            if form == "csv"
            else _lines(file, form, begin, take_last=take_last)
        )


def _lines(file: BinaryIO, form: str, begin: int, *, take_last: bool) -> Iterator[tuple[Any, int]]:
    file.seek(begin)
    for line in file:
        begin += len(line)
        text = line.decode(errors="replace").rstrip("\r\n")
        whole = take_last or line.endswith(b"\n")
        if form == "text":
            if not whole:
                return
            yield text, begin
        elif text.strip():
            value = _json(text)
            # Half a JSON object cannot be parsed, so an object that can be parsed is whole, also without its newline.
            if not whole and not isinstance(value, dict):
                return
            yield value, begin


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text  # the converter or the dead letters decide


class _Lines:
    """Lines for the csv module, which reads as many as a row has; `ended` is true after the last whole line."""

    def __init__(self, file: BinaryIO, *, take_last: bool) -> None:
        self._file = file
        self._take_last = take_last
        self.position = 0
        self._ended = False

    def ended(self) -> bool:
        return self._ended

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline()
        if not line or not (self._take_last or line.endswith(b"\n")):
            self._ended = True
            raise StopIteration
        encoding = "utf-8-sig" if self.position == 0 else "utf-8"
        self.position += len(line)
        return line.decode(encoding, errors="replace")


def _csv_rows(file: BinaryIO, begin: int, *, take_last: bool) -> Iterator[tuple[Any, int]]:
    csv.field_size_limit(_LONGEST_FIELD)
    lines = _Lines(file, take_last=take_last)
    header = next(csv.reader(lines), [])
    if lines.ended():
        return
    if begin > lines.position:
        file.seek(begin)
        lines.position = begin
    for row in csv.reader(lines):
        if lines.ended() and not take_last:
            return  # the end of the file came inside quotes
        if row:
            value: dict[str, Any] = dict.fromkeys(header) | dict(zip(header, row, strict=False))
            yield value | ({EXTRA: row[len(header) :]} if len(row) > len(header) else {}), lines.position


def _parquet_rows(path: str, begin: int) -> Iterator[tuple[Any, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not _has_footer(path):
        return
    try:
        with pq.ParquetFile(path) as file:
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                if begin < after:
                    for batch in file.iter_batches(row_groups=[group]):
                        skipped = min(max(begin - first, 0), batch.num_rows)
                        for number, row in enumerate(batch.slice(skipped).to_pylist()):
                            yield row, first + skipped + number + 1
                        first += batch.num_rows
                first = after
    except pa.ArrowException as problem:
        raise UserError(f"{path} is no Parquet file: {str(problem).splitlines()[0]}") from problem


def _has_footer(path: str) -> bool:
    with open(path, "rb") as file:
        if file.read(len(_FOOTER)) not in {_FOOTER, b""}:
            raise UserError(f"{path} is no Parquet file: it does not begin as one")
        file.seek(0, 2)
        if file.tell() < 3 * len(_FOOTER):
            return False
        file.seek(-len(_FOOTER), 2)
        return file.read(len(_FOOTER)) == _FOOTER
