"""One file per kind of load. Each has `cases(sizes)`: the rows it measures, each runnable for one role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.bed import Bed
from bench.measure import Quantity

Measured = dict[Quantity, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    load: str
    label: str
    quantities: tuple[Quantity, ...]
    run: Callable[[Bed, str], Measured]
    x: int | None = None
