"""What is known of each mutant: verdicts of any number of runs add up in a file, one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Progress:
    """Of one mutant, over all runs."""

    seeds: int = 0
    """So many of its seeds ran."""
    seed: int | None = None
    """The seed that noticed the bug."""
    violation: str | None = None
    cpu_s: float = 0.0
    by_schedule: bool = False
    """The listed schedule fails with the bug."""

    @property
    def found(self) -> bool:
        return self.violation is not None


class Results:
    def __init__(self, path: Path | None) -> None:
        """`path` None: nothing is kept."""
        self._path = path
        self._progress: dict[str, Progress] = {}
        self.healthy: set[int] = set()
        """Seeds that the product without a bug survives."""
        self.broken: dict[int, str] = {}
        """Seeds that fail without a bug: they prove nothing."""
        for row in self._rows():
            self._take(row)

    def _rows(self) -> Iterator[dict[str, Any]]:
        if self._path is not None and self._path.exists():
            yield from (json.loads(line) for line in self._path.read_text().splitlines())

    def _take(self, row: dict[str, Any]) -> None:
        if "healthy" in row:
            self.healthy.update(row["healthy"])
            self.broken.update({int(seed): violation for seed, violation in row["broken"]})
            return
        progress = self.of(row["mutant"])
        if "by_schedule" in row:
            progress.by_schedule = row["by_schedule"]
            return
        progress.seeds += row["seeds"]
        progress.cpu_s += row["cpu_s"]
        progress.seed, progress.violation = row["seed"], row["violation"]

    def of(self, identity: str) -> Progress:
        return self._progress.setdefault(identity, Progress())

    def add(self, row: dict[str, Any]) -> None:
        self._take(row)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
