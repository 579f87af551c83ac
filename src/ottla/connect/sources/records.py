"""The records of one file from a place on: lines, JSON lines, CSV and Parquet. Only whole records count.

A reader gives (value, place behind it): bytes for lines, rows for Parquet. The end of a file that is still being written
waits: a line without its newline, a quoted CSV field that is not closed, a Parquet file without its footer.
A file may come from a stranger: a line, a row and the columns have limits, and a Parquet file is read in small batches whose
repeated values stay shared.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, BinaryIO

from ottla.model.user_error import UserError
from ottla.payloads.json_text import read_json

FORMATS = ("text", "json", "csv", "parquet")
_FOOTER = b"PAR1"
LONGEST_LINE = 64 << 20
"""Bytes of a line, and of a CSV row with all its lines."""
MAX_COLUMNS = 10_000
MAX_PARQUET_VALUES = 256 << 20
"""Bytes of the values of a column that are unpacked at a time."""
_PARQUET_ROWS = 1024
_ROWS_AT_ONCE = 16
"""Rows that exist as Python objects at a time."""
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
    while line := _line(file, begin):
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


def _line(file: BinaryIO, position: int, room: int = LONGEST_LINE) -> bytes:
    """The next line, or what there is of it; UserError when it has more than `room` bytes."""
    line = file.readline(room + 1)
    if len(line) > room:
        raise UserError(f"{file.name}: the line or row at byte {position} is longer than {LONGEST_LINE >> 20} MiB")
    return line


class _Lines:
    """Lines for the csv module, which reads as many as a row has; `ended` is true after the last whole line."""

    def __init__(self, file: BinaryIO, *, take_last: bool) -> None:
        self._file = file
        self._take_last = take_last
        self.position = 0
        self.row_begin = 0
        self._ended = False

    def ended(self) -> bool:
        return self._ended

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = _line(self._file, self.row_begin, max(0, LONGEST_LINE - (self.position - self.row_begin)))
        if not line or not (self._take_last or line.endswith(b"\n")):
            self._ended = True
            raise StopIteration
        encoding = "utf-8-sig" if self.position == 0 else "utf-8"
        self.position += len(line)
        return line.decode(encoding, errors="replace")


def _csv_rows(file: BinaryIO, begin: int, *, take_last: bool) -> Iterator[tuple[Any, int]]:
    csv.field_size_limit(LONGEST_LINE)
    lines = _Lines(file, take_last=take_last)
    header = next(csv.reader(lines), [])
    if lines.ended():
        return
    _check_columns(file.name, len(header))
    if begin > lines.position:
        file.seek(begin)
        lines.position = begin
    lines.row_begin = lines.position
    for row in csv.reader(lines):
        if lines.ended() and not take_last:
            return  # the end of the file came inside quotes
        lines.row_begin = lines.position
        if row:
            _check_columns(file.name, len(row))
            value: dict[str, Any] = dict.fromkeys(header) | dict(zip(header, row, strict=False))
            yield value | ({EXTRA: row[len(header) :]} if len(row) > len(header) else {}), lines.position


def _check_columns(path: str, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise UserError(f"{path} has a row of {columns} columns, more than {MAX_COLUMNS}")


def _parquet_rows(path: str, begin: int) -> Iterator[tuple[Any, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not _has_footer(path):
        return
    try:
        metadata = pq.read_metadata(path)
        _check_columns(path, metadata.num_columns)
        # A dictionary of one value of 1 MB stands for any number of rows: it stays one value until a row is made.
        columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        shared = [
            column.path
            for column in columns
            if column.physical_type == "BYTE_ARRAY" and column.logical_type.type in {"STRING", "NONE"}
        ]
        with pq.ParquetFile(path, read_dictionary=shared) as file:
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                if begin < after:
                    _check_values(path, file.metadata.row_group(group))
                    for batch in file.iter_batches(batch_size=_PARQUET_ROWS, row_groups=[group]):
                        skipped = min(max(begin - first, 0), batch.num_rows)
                        for number in range(skipped, batch.num_rows, _ROWS_AT_ONCE):
                            rows = batch.slice(number, _ROWS_AT_ONCE).to_pylist()
                            for at, row in enumerate(rows, first + number + 1):
                                yield row, at
                        first += batch.num_rows
                first = after
    except pa.ArrowException as problem:
        raise UserError(f"{path} is not a Parquet file: {str(problem).splitlines()[0]}") from problem


def _check_values(path: str, group: Any) -> None:
    """A column chunk is unpacked page by page, and a page is at most the chunk."""
    for number in range(group.num_columns):
        size = group.column(number).total_uncompressed_size
        if size > MAX_PARQUET_VALUES:
            name = group.column(number).path_in_schema
            raise UserError(
                f"{path}: column {name} of a row group has {size >> 20} MiB, more than {MAX_PARQUET_VALUES >> 20}"
            )


def _has_footer(path: str) -> bool:
    with open(path, "rb") as file:
        if file.read(len(_FOOTER)) not in {_FOOTER, b""}:
            raise UserError(f"{path} is not a Parquet file: it does not begin as one")
        file.seek(0, 2)
        if file.tell() < 3 * len(_FOOTER):
            return False
        file.seek(-len(_FOOTER), 2)
        return file.read(len(_FOOTER)) == _FOOTER
