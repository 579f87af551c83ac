"""Reads of a view for `ottla pipeline serve`: pages in the order of its keys, and one row by its key.

All pages of a list are of one version of the view's Delta table: `next` carries that version. Each answer reports the
offsets of the inputs that its version reflects. delta-rs runs the queries and skips files by the statistics of the keys.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.model.extras import require
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from deltalake import DeltaTable

PAGE_ROWS, MOST_ROWS = 1000, 100_000
_COMMITS_READ = 1000
"""Each is a file. More commits between two batches come from no pipeline."""
_MARK = "ottla page mark "
_WRONG_AFTER = "`after` is not the `next` of a page of this view: begin again without it"


class RowMissing(UserError):
    """No row has this key; `true_at` holds the offsets at which that is true."""

    def __init__(self, key: str, true_at: dict[str, Any]) -> None:
        super().__init__(f"the view has no row with the key {key!r}")
        self.true_at = true_at


def page(path: str, keys: Sequence[str], *, limit: int = PAGE_ROWS, after: str | None = None) -> dict[str, Any]:
    """The first `limit` rows behind `after`, the `next` of the page before. `next` is null on the last page."""
    if not 1 <= limit <= MOST_ROWS:
        raise UserError(f"`limit` is the number of rows of a page, from 1 to {MOST_ROWS}, not {limit}")
    version, last = _position(after, keys) if after else (None, None)
    table = _opened(path, version)
    columns = _key_columns(table, keys)
    where = "" if last is None else f"where {_behind(columns, last)}"
    texts = ", ".join(f"{column.as_text()} as {_quoted(_MARK + column.name)}" for column in columns)
    order = ", ".join(_quoted(key) for key in keys)
    rows = _queried(table, f"select {texts}, * from view {where} order by {order} limit {limit + 1}")  # noqa: S608 - quoted
    is_last = len(rows) <= limit
    marks = [[row.pop(_MARK + key) for key in keys] for row in rows[:limit]]
    return {
        "rows": [_json_row(row) for row in rows[:limit]],
        "total": _queried(table, "select count(*) as n from view")[0]["n"],
        "next": None if is_last else _token(table.version(), marks[-1]),
        "true_at": _true_at(table),
    }


def row(path: str, keys: Sequence[str], key: str) -> dict[str, Any]:
    """The row of a key, in the form that the view's topic has it: text, or a JSON object for several columns."""
    try:
        parts = json.loads(key) if len(keys) > 1 else {keys[0]: key}
        texts = [_as_text(parts[name]) for name in keys]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{key!r} is not a key of this view: give a JSON object with {', '.join(keys)}") from None
    table = _opened(path, None)
    columns = _key_columns(table, keys)
    _check_texts(key, columns, texts)
    same = " and ".join(column.equal(text) for column, text in zip(columns, texts, strict=True))
    rows = _queried(table, f"select * from view where {same}")  # noqa: S608 - quoted
    if not rows:
        raise RowMissing(key, _true_at(table))
    return {"row": _json_row(rows[0]), "true_at": _true_at(table)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyColumn:
    """A key column in SQL. Its values have a form as text: base64 for bytes."""

    name: str
    kind: str
    """The type, in Arrow's words of DataFusion."""

    def as_text(self) -> str:
        name = _quoted(self.name)
        return f"encode({name}, 'base64')" if self.kind == "Binary" else f"cast({name} as string)"

    def value(self, text: str) -> str:
        if self.kind == "Binary":
            return f"X'{base64.b64decode(text + '=' * (-len(text) % 4), validate=True).hex()}'"
        return f"arrow_cast({_literal(text)}, {_literal(self.kind)})"

    def equal(self, text: str | None) -> str:
        return f"{_quoted(self.name)} is null" if text is None else f"{_quoted(self.name)} = {self.value(text)}"

    def greater(self, text: str | None) -> str:
        """Nulls are last."""
        return (
            "false" if text is None else f"({_quoted(self.name)} > {self.value(text)} or {_quoted(self.name)} is null)"
        )


def _key_columns(table: DeltaTable, keys: Sequence[str]) -> list[_KeyColumn]:
    names = ", ".join(f"arrow_typeof({_quoted(key)}) as {_quoted(key)}" for key in keys)
    kinds = _queried(table, f"select {names} from view limit 1")  # noqa: S608 - quoted
    return [_KeyColumn(name=key, kind=_plain(kinds[0][key]) if kinds else "Utf8") for key in keys]


def _plain(kind: str) -> str:
    """The type of a literal: scans give text and bytes as views, with the same values."""
    return {"Utf8View": "Utf8", "LargeUtf8": "Utf8", "BinaryView": "Binary", "LargeBinary": "Binary"}.get(kind, kind)


def _as_text(part: Any) -> str | None:
    """A part of a JSON key, as a column that is cast to text has it."""
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, dict | list):
        raise TypeError(part)
    return json.dumps(part)


def _check_texts(key: str, columns: Sequence[_KeyColumn], texts: Sequence[str | None]) -> None:
    for column, text in zip(columns, texts, strict=True):
        if text is not None and column.kind != "Utf8":
            try:
                _run_query(f"select {column.value(text)}")
            except (_QueryFailed, ValueError):
                raise UserError(
                    f"{key!r} is not a key of this view: the column {column.name} has the type {column.kind}"
                    + (", give its bytes in base64" if column.kind == "Binary" else "")
                ) from None


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    """As Spark's to_json: bytes in base64, numbers that JSON does not have as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return _json_row(value)
    return [_json_value(part) for part in value] if isinstance(value, list) else value


def _opened(path: str, version: int | None) -> DeltaTable:
    require("a view", "deltalake")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise UserError(f"the view has no table at {path} yet: its pipeline has written no row") from None
    except DeltaError as problem:
        raise UserError(f"the view's version {version} is gone, list it again from its first page: {problem}") from None


def _queried(table: DeltaTable, query: str) -> list[dict[str, Any]]:
    try:
        return _run_query(query, table)
    except _QueryFailed as problem:  # files that a vacuum removed
        raise UserError(f"the view cannot be read: {str(problem).splitlines()[0]}") from problem


def _run_query(query: str, table: DeltaTable | None = None) -> list[dict[str, Any]]:
    from deltalake import QueryBuilder

    builder = QueryBuilder() if table is None else QueryBuilder().register("view", table)
    try:
        rows: list[dict[str, Any]] = pa.table(builder.execute(query).read_all()).to_pylist()
    except Exception as problem:  # deltalake has no class of its own for a query that fails while it runs
        raise _QueryFailed(str(problem) or type(problem).__name__) from problem
    return rows


class _QueryFailed(Exception):
    """Raised by DataFusion."""


def _true_at(table: DeltaTable) -> dict[str, Any]:
    """The offsets of the newest commit of a batch up to the version of `table`. Other commits, of a compaction, have none.

    deltalake's own history numbers commits wrongly while a pipeline writes, and reads all of them (1.6).
    """
    from deltalake.fs import DeltaStorageHandler

    files = DeltaStorageHandler(table.table_uri)
    for version in range(table.version(), max(-1, table.version() - _COMMITS_READ), -1):
        try:
            commit = files.open_input_file(f"_delta_log/{version:020}.json").read()
        except FileNotFoundError:  # the table removes its oldest commits
            break
        for line in commit.splitlines():
            note = json.loads(line).get("commitInfo", {})
            if "ottla.offsets" in note:
                offsets: dict[str, Any] = json.loads(note["ottla.offsets"])
                return offsets
    return {}


def _behind(columns: Sequence[_KeyColumn], last: Sequence[str | None]) -> str:
    """Rows whose keys are greater than `last`, compared column by column."""
    choices = []
    for index, column in enumerate(columns):
        equal = [before.equal(text) for before, text in zip(columns[:index], last[:index], strict=True)]
        choices.append(" and ".join([*equal, column.greater(last[index])]))
    return " or ".join(f"({choice})" for choice in choices)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _token(version: int, last: Sequence[str | None]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, last]).encode()).decode()


def _position(after: str, keys: Sequence[str]) -> tuple[int, list[str | None]]:
    try:
        version, last = json.loads(base64.urlsafe_b64decode(after))
        well_formed = type(version) is int and version >= 0 and isinstance(last, list) and len(last) == len(keys)
        if not well_formed or not all(text is None or isinstance(text, str) for text in last):
            raise ValueError(after)
    except (ValueError, TypeError, RecursionError):
        raise UserError(_WRONG_AFTER) from None
    return version, last
