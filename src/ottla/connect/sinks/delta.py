"""Delta tables by delta-rs. The application's transaction id in the Delta log makes a piece of work exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ottla.connect.locations import locate
from ottla.connect.sinks.base import (
    DELETED,
    Work,
    last_of_each,
    of_known_types,
    without_deleted,
)
from ottla.model.extras import require
from ottla.model.user_error import UserError

_NEWEST_COMMITS = 20
_LOOKS = 10


class DeltaSink:
    """Appends, or with `keys` upserts (and deletes rows whose `_deleted` is true)."""

    def __init__(
        self,
        uri: str,
        *,
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        storage_options: dict[str, str] | None = None,
    ) -> None:
        require("a Delta table", "deltalake")
        location = locate(uri)
        self.uri = location.uri
        self._keys = list(keys)
        self._partition_by = list(partition_by)
        self._storage_options = {**location.storage_options(), **(storage_options or {})}

    def put(self, rows: pa.Table, work: Work) -> bool:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        there = DeltaTable.is_deltatable(self.uri, storage_options=self._storage_options)
        table = DeltaTable(self.uri, storage_options=self._storage_options) if there else None
        if table is not None:
            last = table.transaction_version(work.application)
            if last is not None and last >= work.version:
                return False
            there_schema = pa.schema(table.schema().to_arrow())
            rows = of_known_types(rows, there_schema)
            check_kinds(f"the Delta table {self.uri}", there_schema, rows.schema)
        else:
            rows = of_known_types(rows)
        properties = CommitProperties(
            app_transactions=[Transaction(work.application, work.version)] if work.is_marked else None,
            custom_metadata=dict(work.note),
        )
        try:
            if table is None or not self._keys:
                kept, _ = without_deleted(last_of_each(rows, self._keys))
                write_deltalake(
                    table or self.uri,
                    kept,
                    mode="append",
                    schema_mode="merge" if table is not None else None,
                    partition_by=self._partition_by or None if table is None else None,
                    commit_properties=properties,
                    storage_options=None if table is not None else self._storage_options,
                )
            else:
                self._merge(table, last_of_each(rows, self._keys), properties)
        except (DeltaError, OSError) as problem:
            last = self.reached(work.application) if isinstance(problem, CommitFailedError) else None
            if last is not None and last >= work.version:
                return False  # another attempt at the same work was faster
            raise UserError(f"the Delta table {self.uri} was not written: {problem}") from problem
        return True

    def reached(self, application: str) -> int | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.uri, storage_options=self._storage_options):
            return None
        return DeltaTable(self.uri, storage_options=self._storage_options).transaction_version(application)

    def _merge(self, table: Any, rows: pa.Table, properties: Any) -> None:
        columns = [name for name in rows.column_names if name != DELETED]
        if DELETED not in rows.column_names:
            rows = rows.append_column(DELETED, pa.repeat(pa.scalar(False), rows.num_rows))
        same = " and ".join(_same(key, has_nulls=rows.column(key).null_count > 0) for key in self._keys)
        values = {f'"{name}"': f'source."{name}"' for name in columns}
        (
            table.merge(
                source=rows,
                predicate=same,
                source_alias="source",
                target_alias="target",
                merge_schema=not set(columns) <= {field.name for field in table.schema().fields},
                commit_properties=properties,
            )
            .when_matched_delete(f"source.{DELETED}")
            .when_matched_update(values)
            .when_not_matched_insert(values, predicate=f"not source.{DELETED}")
            .execute()
        )

    def close(self) -> None:
        return


def _same(key: str, *, has_nulls: bool) -> str:
    """Null is a key like any other. The longer condition cannot use a hash join, so only a batch with nulls has it."""
    equal = f'target."{key}" = source."{key}"'
    return f'({equal} or (target."{key}" is null and source."{key}" is null))' if has_nulls else equal


def check_kinds(table: str, there: pa.Schema, coming: pa.Schema) -> None:
    """delta-rs casts what it can, a number into a list even; a column of a Delta or Iceberg table keeps its kind here."""
    for field in coming:
        index = there.get_field_index(field.name)
        if index < 0:
            continue
        kind, mine = _kind(there.field(index).type), _kind(field.type)
        if mine not in {kind, "null"} and (kind, mine) != ("floating", "integer"):
            raise UserError(
                f"{table} was not written: its column {field.name} is {there.field(index).type}, the rows "
                f"have {field.type}; cast it, or write to a new table"
            )


def _kind(kind: pa.DataType) -> str:
    """Types of one kind take each other's values; nested ones must be the same."""
    for name in ("integer", "floating", "boolean", "timestamp", "date", "decimal", "null"):
        if getattr(pa.types, f"is_{name}")(kind):
            return name
    text = str(kind).replace("large_", "").replace("_view", "")
    return re.sub(r"(item|element)( not null)?: ", "", text)


class TableMissing(UserError):
    """The table that a step or a connector reads does not exist yet."""


def read_delta(uri: str, storage_options: dict[str, str] | None = None) -> tuple[pa.Table, dict[str, str]]:
    """The table as it is now, and what the last commit of these rows noted (the offsets they are true at)."""
    require("a Delta table", "deltalake")
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    location = locate(uri)
    options = {**location.storage_options(), **(storage_options or {})}
    try:
        table = DeltaTable(location.uri, storage_options=options)
        for _ in range(_LOOKS):
            notes = _newest_notes(table)
            # The history is that of the log, which a writer may have extended since the table was opened.
            newest = DeltaTable(location.uri, storage_options=options)
            if newest.version() == table.version():
                return table.to_pyarrow_table(), notes
            table = newest
    except TableNotFoundError:
        raise TableMissing(f"there is no Delta table at {uri}") from None
    raise UserError(f"the Delta table {uri} changed {_LOOKS} times while it was opened: try again")


def _newest_notes(table: Any) -> dict[str, str]:
    for limit in (_NEWEST_COMMITS, None):
        notes = next((notes for notes in map(_notes, table.history(limit)) if notes), None)
        if notes is not None:
            return notes
    return {}


def _notes(commit: Mapping[str, Any]) -> dict[str, str]:
    """What Ottla noted: beside Delta's own facts, or in the only text that Spark's MERGE can add."""
    text = str(commit.get("userMetadata") or "")
    added = json.loads(text) if text.startswith('{"ottla.') else {}
    return {name: str(value) for name, value in {**commit, **added}.items() if name.startswith("ottla.")}
