"""Reads of a view for `ottla pipeline serve`: pages in the order of its keys, and one row by its key.

All pages of a list are of one version of the view's Delta table: `next` carries that version. Each answer reports the
offsets of the inputs that its version reflects. delta-rs runs the queries and skips files by the statistics of the keys.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.connect.sinks.base import need_extra
from ottla.model.user_error import UserError

if TYPE_CHECKING:
    from deltalake import DeltaTable

PAGE_ROWS, MOST_ROWS = 1000, 100_000
_WRONG_AFTER = "`after` is not the `next` of a page of this view: begin again without it"


class RowMissing(UserError):
    """No row has this key; `true_at` holds the offsets at which that is true."""

    def __init__(self, key: str, true_at: dict[str, Any]) -> None:
        super().__init__(f"the view has no row with the key {key!r}")
        self.true_at = true_at


def page(path: str, keys: Sequence[str], *, limit: int = PAGE_ROWS, after: str | None = None) -> dict[str, Any]:
    """The first `limit` rows behind `after`, the `next` of the page before. `next` is null on the last page."""
    limit = max(1, min(limit, MOST_ROWS))
    version, last = _position(after, keys) if after else (None, None)
    table = _opened(path, version)
    names = [_quoted(key) for key in keys]
    where = "" if last is None else f"where {_behind(names, last)}"
    key_texts = ", ".join(f"cast({name} as string) as __key_{number}" for number, name in enumerate(names))
    order = ", ".join(names)
    rows = _queried(table, f"select {key_texts}, * from view {where} order by {order} limit {limit + 1}")  # noqa: S608 - quoted
    is_last = len(rows) <= limit
    marks = [[row.pop(f"__key_{number}") for number in range(len(keys))] for row in rows[:limit]]
    return {
        "rows": rows[:limit],
        "total": _queried(table, "select count(*) as n from view")[0]["n"],
        "next": None if is_last else _token(table.version(), marks[-1]),
        "true_at": _true_at(table),
    }


def row(path: str, keys: Sequence[str], key: str) -> dict[str, Any]:
    """The row of a key, in the form that the view's topic has it: text, or a JSON object for several columns."""
    try:
        parts = json.loads(key) if len(keys) > 1 else {keys[0]: key}
        texts = [str(parts[name]) for name in keys]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{key!r} is not a key of this view: give a JSON object with {', '.join(keys)}") from None
    table = _opened(path, None)
    same = " and ".join(f"{_quoted(name)} = {_literal(text)}" for name, text in zip(keys, texts, strict=True))
    rows = _queried(table, f"select * from view where {same}")  # noqa: S608 - quoted
    if not rows:
        raise RowMissing(key, _true_at(table))
    return {"row": rows[0], "true_at": _true_at(table)}


def _opened(path: str, version: int | None) -> DeltaTable:
    need_extra("deltalake")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        raise UserError(f"the view has no table at {path} yet: its pipeline has written no row") from None
    except DeltaError as problem:
        raise UserError(f"the view's version {version} is gone, list it again from its first page: {problem}") from None


def _queried(table: DeltaTable, query: str) -> list[dict[str, Any]]:
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    try:
        rows: list[dict[str, Any]] = pa.table(
            QueryBuilder().register("view", table).execute(query).read_all()
        ).to_pylist()
    except DeltaError as problem:  # a key that does not fit its column; files that a vacuum removed
        raise UserError(f"the view cannot be read: {problem}") from problem
    return rows


def _true_at(table: DeltaTable) -> dict[str, Any]:
    from deltalake import DeltaTable

    # The history of a table that was opened at a version has wrong numbers in deltalake 1.6.
    for entry in DeltaTable(table.table_uri).history():
        if int(entry["version"]) <= table.version() and "ottla.offsets" in entry:
            offsets: dict[str, Any] = json.loads(entry["ottla.offsets"])
            return offsets
    return {}


def _behind(names: Sequence[str], last: Sequence[str]) -> str:
    """Rows whose keys are greater than `last`, compared column by column."""
    choices = []
    for index, name in enumerate(names):
        equal = [f"{before} = {_literal(text)}" for before, text in zip(names[:index], last[:index], strict=True)]
        choices.append(" and ".join([*equal, f"{name} > {_literal(last[index])}"]))
    return " or ".join(f"({choice})" for choice in choices)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """Text in SQL; the query turns it into the type of the column that it is compared with."""
    return "'" + text.replace("'", "''") + "'"


def _token(version: int, last: Sequence[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, last]).encode()).decode()


def _position(after: str, keys: Sequence[str]) -> tuple[int, list[str]]:
    try:
        version, last = json.loads(base64.urlsafe_b64decode(after))
        if not isinstance(version, int) or len(last) != len(keys):
            raise ValueError(after)
        return version, [str(text) for text in last]
    except (ValueError, TypeError):
        raise UserError(_WRONG_AFTER) from None
