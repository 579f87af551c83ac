"""What joins with tables must give, as Kafka Streams defines them: one record at a time in the order of timestamps."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Updates = dict[str, list[Any]]
"""Per key, every result in order; None is a deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    side: int
    key: str
    value: str | None
    at: int
    part: int
    offset: int
    refers_to: str | None = None


def history(draw: random.Random, count: int, *, deletes: tuple[float, float], keys: int = 4) -> list[Record]:
    """Random records of two topics in the order of their timestamps, no two at one time."""
    at, ends, records = 0, {}, []
    for number in range(count):
        at += draw.choice((1, 1, 2, 50))
        side = draw.randrange(2)
        key = f"k{draw.randrange(keys)}"
        part = int(key[1:]) % 2
        offset = ends[side, part] = ends.get((side, part), -1) + draw.choice((1, 1, 3))  # a compacted log has gaps
        value = None if draw.random() < deletes[side] else f"{'lr'[side]}{number}"
        refers_to = draw.choice((None, *(f"k{each}" for each in range(keys))))
        records.append(Record(side=side, key=key, value=value, at=at, part=part, offset=offset, refers_to=refers_to))
    return records


def batches(draw: random.Random, records: list[Record]) -> list[list[Record]]:
    """The history cut at random places; within a batch records come in any order, as tasks read them."""
    cuts = sorted(draw.sample(range(1, len(records)), draw.randrange(min(6, len(records)))))
    pieces = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    for piece in pieces:
        draw.shuffle(piece)
    return pieces


def stream_table(records: Iterable[Record], *, how: str, emits: bool = False) -> Updates:
    """Side 0 is the table, side 1 the stream."""
    table: dict[str, str | None] = {}
    stream: dict[str, str | None] = {}
    updates: Updates = {}
    for record in records:
        if record.side == 0:
            table[record.key] = record.value
            if not emits or record.key not in stream:
                continue
        else:
            stream[record.key] = record.value
        if how == "left" or table.get(record.key) is not None:
            updates.setdefault(record.key, []).append((stream[record.key], table.get(record.key)))
    return updates


def table_table(records: Iterable[Record], *, how: str) -> Updates:
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    updates: Updates = {}

    def result(key: str) -> tuple[str | None, str | None] | None:
        left, right = sides[0].get(key), sides[1].get(key)
        complete = {"inner": left and right, "left": left, "outer": left or right}[how]
        return (left, right) if complete else None

    for record in records:
        before = result(record.key)
        _put(sides[record.side], record)
        after = result(record.key)
        if before or after:
            updates.setdefault(record.key, []).append(after)
    return updates


def foreign_key(records: Iterable[Record], *, how: str) -> Updates:
    """Side 0 is the left table, whose rows refer to keys of side 1."""
    left: dict[str, str] = {}
    refers_to: dict[str, str | None] = {}
    right: dict[str, str] = {}
    shown: set[str] = set()
    updates: Updates = {}
    for record in records:
        if record.side == 0:
            _put(left, record)
            refers_to[record.key] = record.refers_to
            touched = [record.key]
        else:
            _put(right, record)
            touched = [key for key in left if refers_to[key] == record.key]
        for key in touched:
            match = right.get(refers_to[key] or "")
            if key in left and (match or how == "left"):
                shown.add(key)
                updates.setdefault(key, []).append((left[key], match))
            elif key in shown:
                shown.remove(key)
                updates.setdefault(key, []).append(None)
    return updates


def _put(table: dict[str, str], record: Record) -> None:
    if record.value is None:
        table.pop(record.key, None)
    else:
        table[record.key] = record.value


def newest(updates: Updates) -> dict[str, Any]:
    return {key: values[-1] for key, values in updates.items() if values[-1] is not None}
