"""Delta's statistics of a data file, from the footer that Parquet wrote: readers skip files by them. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

_STATS_COLUMNS = 32
_STATS_TEXT = 32


def statistics(metadata: Any) -> dict[str, dict[str, Any]]:
    """Delta's statistics of a file, for columns and types whose order is the same for every reader.

    Floating-point numbers have none: a NaN is larger than all numbers for Spark and is left out by Parquet. Times have
    milliseconds in Delta's statistics, so a maximum is rounded up.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    no_bounds: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(min(row_group.num_columns, _STATS_COLUMNS)):
            column = row_group.column(number)
            name, recorded = column.path_in_schema, column.statistics
            if "." in name:
                continue
            if recorded is None or not recorded.has_null_count:
                no_bounds.add(name)
                nulls.pop(name, None)
                continue
            if name not in no_bounds:
                nulls[name] = nulls.get(name, 0) + recorded.null_count
            if recorded.null_count == row_group.num_rows:
                continue
            bounds = _bounds(recorded)
            if bounds is None:
                no_bounds.add(name)
            else:
                lowest[name] = min(lowest.get(name, bounds[0]), bounds[0])
                highest[name] = max(highest.get(name, bounds[1]), bounds[1])
    return {
        "minValues": {name: _lower_text(value) for name, value in lowest.items() if name not in no_bounds},
        "maxValues": {name: _upper_text(value) for name, value in highest.items() if name not in no_bounds},
        "nullCount": nulls,
    }


def _bounds(recorded: Any) -> tuple[Any, Any] | None:
    if not recorded.has_min_max:
        return None
    low, high = recorded.min, recorded.max
    if isinstance(low, str):
        return (low, high) if len(high) <= _STATS_TEXT and len(low) <= _STATS_TEXT else None
    if isinstance(low, bool) or not isinstance(low, int | date):
        return None
    return low, high


def _lower_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return _milliseconds(value)
    return value.isoformat() if isinstance(value, date) else value


def _upper_text(value: Any) -> Any:
    return _milliseconds(value + timedelta(microseconds=999)) if isinstance(value, datetime) else _lower_text(value)


def _milliseconds(value: datetime) -> str:
    text = (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat(timespec="milliseconds")
    return f"{text}Z" if value.tzinfo else text
