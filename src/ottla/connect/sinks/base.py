"""What every sink of tables is: rows in, and the work that they are, so that a repeated piece of work changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from ottla.model.user_error import UserError

DELETED = "_deleted"
"""A boolean column that upserting sinks understand: the row with this key goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`version` rises with each piece of work of an application (a micro-batch, the end offset of a poll)."""

    application: str
    version: int
    note: Mapping[str, str] = field(default_factory=dict)
    """Kept beside the rows where the sink can: for instance the offsets that they are true at."""
    is_marked: bool = True
    """False for a single write, which nobody repeats under its name: the table keeps no version of it."""


class TableSink(Protocol):
    def put(self, rows: pa.Table, work: Work) -> bool:
        """All rows, or none when it raises. False when this work (or a later one) was already there."""

    def close(self) -> None: ...


def without_deleted(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows to keep and the rows to delete."""
    if DELETED not in rows.column_names:
        return rows, rows.slice(0, 0)
    import pyarrow.compute as pc

    gone = pc.fill_null(rows.column(DELETED), False)
    plain = rows.drop_columns([DELETED])
    return plain.filter(pc.invert(gone)), plain.filter(gone)


def last_of_each(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Of rows with one key, the last: an upsert has one row per key."""
    if rows.num_rows == 0 or not keys:
        return rows
    numbered = rows.append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(keys).aggregate([("__row", "max")]).column("__row_max")
    return rows.take(last.combine_chunks().sort())


def null_key_error(table: str, keys: Sequence[str]) -> UserError:
    """Null equals nothing: an upsert would insert such a row again with each batch."""
    return UserError(
        f"a row of {table} has no value in its key ({', '.join(keys)}): leave such rows out, or give them one with coalesce"
    )


def refuse_null_keys(rows: pa.Table, keys: Sequence[str], table: str) -> None:
    """UserError for a row that an upsert could not find again."""
    if any(rows.column(key).null_count for key in keys if key in rows.column_names):
        raise null_key_error(table, keys)


def known_type(kind: pa.DataType) -> pa.DataType | None:
    """The type without the parts that no value has shown yet: nulls, empty lists, empty objects."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        fields = [(field.name, known_type(field.type)) for field in kind]
        kept = [pa.field(name, inner) for name, inner in fields if inner is not None]
        return pa.struct(kept) if kept else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = known_type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return kind


def of_known_types(rows: pa.Table, there: pa.Schema | None = None) -> pa.Table:
    """Rows that a typed table takes. A column that has shown no value yet gets its type from the table that is there, or
    is left out until one comes."""
    for name in rows.column_names:
        index = rows.schema.get_field_index(name)
        row_type = rows.schema.field(index).type
        kind = known_type(row_type)
        if kind == row_type:
            continue
        at = there.get_field_index(name) if there is not None else -1
        column_type = there.field(at).type if there is not None and at >= 0 else kind
        if column_type is None:
            rows = rows.remove_column(index)
        else:
            rows = rows.set_column(index, name, pa.array(rows.column(index).to_pylist(), column_type))
    return rows
