"""A sink's records as rows: which columns are the key, what a tombstone is, and one table of them all. Pure.

`pk.mode` sets where the key's columns come from, with the names of Kafka Connect's JDBC sink. These are `record_value`
(fields of the value), `record_key` (the key, or its fields) and `kafka` (topic, partition and offset). A value that
does not fit its column is returned as an error with its record, so that one bad record need not stop the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ottla.connect.config import flag, words
from ottla.connect.connector import Change
from ottla.connect.converters import ConvertError
from ottla.connect.sinks.base import DELETED
from ottla.model.user_error import UserError

_MODES = ("none", "record_value", "record_key", "kafka")
_COORDINATES = ("__connect_topic", "__connect_partition", "__connect_offset")
Refused = list[tuple[Change, Exception]]


class RowsOf:
    def __init__(self, config: Mapping[str, str]) -> None:
        self._keys = words(config, "pk.fields")
        self._mode = config.get("pk.mode", "record_value")
        self._deletes = flag(config, "delete.enabled", default=False)
        if self._mode not in _MODES:
            raise UserError(f"pk.mode is one of {', '.join(_MODES)}, not {self._mode!r}")
        if self._mode == "kafka":
            self._keys = self._keys or list(_COORDINATES)
            if len(self._keys) != len(_COORDINATES):
                raise UserError("pk.mode kafka has three pk.fields: for the topic, the partition and the offset")
        if self._mode == "record_key" and not self._keys:
            raise UserError("pk.mode record_key needs pk.fields: the names of the key's columns")

    def table(self, changes: Sequence[Change]) -> tuple[pa.Table | None, Refused]:
        """The rows, or None where there are none, and the changes that are none."""
        good: list[tuple[Change, dict[str, Any]]] = []
        refused: Refused = []
        for change in changes:
            try:
                row = self._row(change)
            except ConvertError as problem:
                refused.append((change, problem))
                continue
            if row is not None:
                good.append((change, row))
        kept, mistyped = _fitting(good)
        return kept, refused + mistyped

    def _row(self, change: Change) -> dict[str, Any] | None:
        if change.value is None:
            return self._tombstone(change) if self._deletes and self._keys else None
        if not isinstance(change.value, dict):
            raise ConvertError(f"a {type(change.value).__name__} has no columns; HoistField$Value gives it one")
        row = dict(change.value)
        if self._mode == "record_key":
            row = self._key(change) | {name: value for name, value in row.items() if name not in self._keys}
        elif self._mode == "kafka":
            row |= dict(zip(self._keys, (change.topic, change.partition, change.offset), strict=True))
        missing = [name for name in self._keys if row.get(name) is None]
        if missing:
            raise ConvertError(f"the key {', '.join(missing)} has no value")
        return row | {DELETED: False} if self._deletes else row

    def _key(self, change: Change) -> dict[str, Any]:
        key = change.key
        if not isinstance(key, dict) and len(self._keys) > 1:
            raise ConvertError(f"the key is a {type(key).__name__}, pk.fields names {len(self._keys)} columns of it")
        fields = key if isinstance(key, dict) else {self._keys[0]: key}
        return {name: fields.get(name) for name in self._keys}

    def _tombstone(self, change: Change) -> dict[str, Any]:
        fields = self._key(change)
        if any(value is None for value in fields.values()):
            raise ConvertError("a tombstone without a key deletes nothing")
        return fields | {DELETED: True}


def _fitting(rows: list[tuple[Change, dict[str, Any]]]) -> tuple[pa.Table | None, Refused]:
    """A table with the columns of all rows, in the order of their first appearance; a row may lack columns.

    If the values of a column differ in type, the first value decides the type.
    """
    refused: Refused = []
    for name in dict.fromkeys(name for _, row in rows for name in row):
        if _column([row.get(name) for _, row in rows]) is not None:
            continue
        kind = next(
            (
                column.type
                for _, row in rows
                if (column := _column([row.get(name)])) is not None and column.null_count == 0
            ),
            None,
        )
        mistyped = {number for number, (_, row) in enumerate(rows) if _column([row.get(name)], kind) is None}
        words = f"the column {name} is {kind or 'of no type'}, and not {{!r:.100}}; Cast$Value can make them one type"
        refused += [
            (rows[number][0], ConvertError(words.format(rows[number][1].get(name)))) for number in sorted(mistyped)
        ]
        rows = [column for number, column in enumerate(rows) if number not in mistyped]
    if not rows:
        return None, refused
    names = dict.fromkeys(name for _, row in rows for name in row)
    return pa.table({name: _column([row.get(name) for _, row in rows]) for name in names}), refused


def _column(values: list[Any], kind: pa.DataType | None = None) -> pa.Array | None:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
