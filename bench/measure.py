"""What is measured and what it must reach: quantities, targets, rows, and the verdict.

A row is one load in one shape ("produce", "1 KB, 6 partitions, lz4, acks=all"); it has one or more quantities; each
quantity has one sample per server and round. All statistics of the benchmark happen here and nowhere else.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SUBJECT = "subject"
YARDSTICK = "yardstick"
ROLES = (SUBJECT, YARDSTICK)


@dataclass(frozen=True, slots=True)
class Target:
    """`ratio` compares subject / yardstick with the limit, `absolute` the subject's own value."""

    kind: Literal["ratio", "absolute"]
    op: Literal[">=", "<="]
    limit: float

    def met(self, *, value: float, ratio: float | None) -> bool | None:
        compared = value if self.kind == "absolute" else ratio
        if compared is None:
            return None
        return compared >= self.limit if self.op == ">=" else compared <= self.limit

    def describe(self, unit: str) -> str:
        sign = "≥" if self.op == ">=" else "≤"
        return f"{sign} {self.limit:g}x" if self.kind == "ratio" else f"{sign} {self.limit:g} {unit}"


@dataclass(frozen=True, slots=True)
class Quantity:
    name: str
    unit: str
    better: Literal["higher", "lower"]
    target: Target | None = None


RATE = Quantity("rate", "MB/s", "higher", Target("ratio", ">=", 1.1))
REQUEST_RATE = Quantity("requests", "req/s", "higher", Target("ratio", ">=", 1.1))
CPU_PER_GB = Quantity("broker CPU", "s/GB", "lower", Target("ratio", "<=", 0.5))
CPU_PER_REQUEST = Quantity("broker CPU", "us/req", "lower")
P50 = Quantity("p50", "ms", "lower")
P99 = Quantity("p99", "ms", "lower", Target("ratio", "<=", 0.6))
RSS = Quantity("RSS", "MB", "lower", Target("ratio", "<=", 0.1))
PSS = Quantity("PSS", "MB", "lower")


@dataclass(slots=True)
class Row:
    """The samples of one quantity of one load. `errors` holds what went wrong, per role, instead of a sample."""

    load: str
    label: str
    quantity: Quantity
    samples: dict[str, list[float]] = field(default_factory=lambda: {role: [] for role in ROLES})
    errors: dict[str, list[str]] = field(default_factory=lambda: {role: [] for role in ROLES})
    # The size on the x axis (partitions, connections) of a growth row; None elsewhere.
    x: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.load, self.label, self.quantity.name)

    def median(self, role: str) -> float | None:
        return statistics.median(self.samples[role]) if self.samples[role] else None

    def spread(self, role: str) -> tuple[float, float] | None:
        return (min(self.samples[role]), max(self.samples[role])) if self.samples[role] else None

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.median(SUBJECT), self.median(YARDSTICK)
        return ours / theirs if ours is not None and theirs else None

    @property
    def verdict(self) -> str:
        """`met`, `short`, `failed` (the subject has errors or no sample), or `-` when nothing is demanded."""
        ours = self.median(SUBJECT)
        if self.errors[SUBJECT] or ours is None:
            return "failed"
        if self.quantity.target is None:
            return "-"
        met = self.quantity.target.met(value=ours, ratio=self.ratio)
        return "no yardstick" if met is None else "met" if met else "short"

    def to_json(self) -> dict[str, Any]:
        quantity, target = self.quantity, self.quantity.target
        return {
            "load": self.load,
            "row": self.label,
            "quantity": quantity.name,
            "unit": quantity.unit,
            "better": quantity.better,
            "target": None if target is None else {"kind": target.kind, "op": target.op, "limit": target.limit},
            "x": self.x,
            "samples": self.samples,
            "errors": self.errors,
            "median": {role: self.median(role) for role in ROLES},
            "ratio": self.ratio,
            "verdict": self.verdict,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Row:
        target = Target(**raw["target"]) if raw["target"] else None
        quantity = Quantity(raw["quantity"], raw["unit"], raw["better"], target)
        return cls(raw["load"], raw["row"], quantity, raw["samples"], raw["errors"], raw["x"])


class Table:
    """The rows of a run, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def _row(self, load: str, label: str, quantity: Quantity, x: int | None) -> Row:
        return self._rows.setdefault((load, label, quantity.name), Row(load, label, quantity, x=x))

    def add(self, load: str, label: str, role: str, values: dict[Quantity, float], x: int | None = None) -> None:
        for quantity, value in values.items():
            self._row(load, label, quantity, x).samples[role].append(value)

    def fail(
        self, load: str, label: str, role: str, quantities: Sequence[Quantity], error: str, x: int | None = None
    ) -> None:
        for quantity in quantities:
            self._row(load, label, quantity, x).errors[role].append(error)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: always a value that was measured."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]
