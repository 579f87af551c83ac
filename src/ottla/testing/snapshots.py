"""The records of a topic as a test compares them."""

from __future__ import annotations

from typing import Any

from ottla.frames.records import DecodedRecord


def as_snapshot(records: list[DecodedRecord]) -> list[dict[str, Any]]:
    """What stays the same from run to run: key, value and headers; the partition if there are several."""
    several = len({record.partition for record in records}) > 1
    rows: list[dict[str, Any]] = []
    for record in records:
        row: dict[str, Any] = {"partition": record.partition} if several else {}
        row |= {"key": record.key, "value": record.value}
        if record.headers:
            row["headers"] = [(name, _text(value)) for name, value in record.headers]
        rows.append(row)
    return rows


def _text(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
