"""Columns of rows that a table does not have: added by the option `evolve`, refused by one sentence otherwise.

Only columns are added. A column keeps its type: rows whose type holds more than the column's would lose values.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ottla.model.user_error import UserError

EVOLVE = "evolve"
_FLOATS = {pa.float16(): 16, pa.float32(): 32, pa.float64(): 64}


def check_columns(
    table: str, there: pa.Schema, coming: pa.Schema, *, evolve: bool, integers_by_value: bool = True
) -> None:
    """UserError before the first row. Where the rows are cast to the table's types, an integer column takes the integers
    that fit, and the cast refuses others."""
    names = {name.lower(): name for name in there.names}
    added = [name for name in coming.names if name not in there.names]
    twins = [name for name in added if name.lower() in names]
    if twins:
        raise UserError(
            f"{table} has the column {names[twins[0].lower()]}, the rows have {twins[0]}: rename it in the step"
        )
    if added and not evolve:
        raise UserError(refused_columns(table, added))
    for field in coming:
        index = there.get_field_index(field.name)
        if index >= 0 and _is_narrower(there.field(index).type, field.type, integers=not integers_by_value):
            raise UserError(
                f"the column {field.name} of {table} is {there.field(index).type} and the rows have {field.type}, which would "
                "lose values: cast the column in the step, or write to a new table"
            )


def refused_columns(table: str, names: Sequence[str]) -> str:
    plural = "s" if len(names) > 1 else ""
    return (
        f"{table} does not have the column{plural} {', '.join(names)}: add evolve=True to the output to add new columns, or "
        "leave them out in the step"
    )


def _is_narrower(column: pa.DataType, rows: pa.DataType, *, integers: bool) -> bool:
    if integers and pa.types.is_integer(column) and pa.types.is_integer(rows):
        return bool(column.bit_width < rows.bit_width)
    if column in _FLOATS and rows in _FLOATS:
        return _FLOATS[column] < _FLOATS[rows]
    if pa.types.is_decimal(column) and pa.types.is_decimal(rows):
        return bool(column.scale < rows.scale)
    return False
