"""State batches: ranges of offsets with one delivery state and count, and how newer batches overlay older batches.

Where two batches overlap, the higher delivery count wins, and with equal counts the higher state. A delivery only moves
forward: available, acknowledged, archived. Neighbours with equal state and count become one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

UNKNOWN_START_OFFSET = -1


class StateBatch(NamedTuple):
    """In the order in which Kafka sorts them."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def standing(self) -> tuple[int, int]:
        return self.delivery_count, self.delivery_state


def combine(older: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Both sets of batches from `start_offset` on, in order and without overlaps."""
    heap = [
        batch._replace(first_offset=max(batch.first_offset, start_offset))
        for batch in (*older, *newer)
        if batch.last_offset >= start_offset
    ]
    heapify(heap)
    combined: list[StateBatch] = []
    while heap:
        batch = heappop(heap)
        if not combined:
            combined.append(batch)
            continue
        last = combined[-1]
        if last.standing == batch.standing and batch.first_offset <= last.last_offset + 1:
            combined[-1] = last._replace(last_offset=max(last.last_offset, batch.last_offset))
        elif batch.first_offset > last.last_offset:
            combined.append(batch)
        else:
            _overlay(combined, heap, batch)
    return tuple(combined)


def _overlay(combined: list[StateBatch], heap: list[StateBatch], batch: StateBatch) -> None:
    """`batch` begins within the last combined batch and differs from it: cut the batch with the lower standing."""
    last = combined[-1]
    if batch.standing < last.standing:
        if batch.last_offset > last.last_offset:
            heappush(heap, batch._replace(first_offset=last.last_offset + 1))
        return
    combined.pop()
    if batch.first_offset > last.first_offset:
        heappush(heap, last._replace(last_offset=batch.first_offset - 1))
    if last.last_offset > batch.last_offset:
        heappush(heap, last._replace(first_offset=batch.last_offset + 1))
    heappush(heap, batch)
