"""The file in which the runs add up: each run, and for each kind of fault how many, how many in flight, and the gaps."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.robustness.edge_faults import Score
from tests.robustness.edge_kinds import DIES, FILLS, HANGS, STOPS_ALL
from tests.robustness.fault_kinds import KINDS, PARTED

LIMITS_S = {DIES: 2.0, HANGS: 10.0, STOPS_ALL: 15.0, PARTED: 10.0, FILLS: 15.0}
"""Seconds without an acknowledgement, on a quiet machine."""


@dataclass
class KindTally:
    tried: int = 0
    hit: int = 0
    over: int = 0
    """Faults whose gap was longer than the limit."""
    anomalies: int = 0
    gaps_s: list[float] = field(default_factory=list)

    @property
    def longest_gap_s(self) -> float:
        return max(self.gaps_s, default=0.0)

    def add(self, score: Score, limit_s: float) -> None:
        self.tried += score.tried
        self.hit += score.hit
        self.over += sum(gap > limit_s for gap in score.gaps)
        self.gaps_s += [round(gap, 2) for gap in score.gaps]


@dataclass
class RunRecord:
    seed: int
    faults: int
    seconds: float
    load: str
    """The machine's load at the end."""
    summary: str = ""
    anomaly: str = ""
    """What stopped the run."""
    complaints: list[str] = field(default_factory=list)
    """Of the simulator's checkers over the history."""
    porcupine: dict[str, int] = field(default_factory=dict)
    """Result -> parts of the history."""
    disagreed: list[str] = field(default_factory=list)
    """Parts that porcupine calls illegal, or could not decide."""

    @property
    def anomalies(self) -> int:
        return bool(self.anomaly) + len(self.complaints) + len(self.disagreed)


@dataclass
class Tally:
    runs: list[RunRecord] = field(default_factory=list)
    kinds: dict[str, KindTally] = field(default_factory=dict)

    def add(self, run: RunRecord, scores: dict[str, Score], anomalous_kind: str = "") -> None:
        self.runs.append(run)
        for kind, score in scores.items():
            self.kinds.setdefault(kind, KindTally()).add(score, LIMITS_S[KINDS[kind][0]])
        if anomalous_kind:
            self.kinds.setdefault(anomalous_kind, KindTally()).anomalies += 1

    def report(self) -> str:
        rows = [
            "| fault | faults | in flight | anomalies | longest gap (s) | limit (s) | over |",
            "|---|---|---|---|---|---|---|",
        ]
        rows += [
            f"| {kind} | {t.tried} | {t.hit} | {t.anomalies} | {t.longest_gap_s:.2f} | {LIMITS_S[KINDS[kind][0]]:g} | {t.over} |"
            for kind, t in sorted(self.kinds.items())
        ]
        faults, anomalies = sum(t.tried for t in self.kinds.values()), sum(run.anomalies for run in self.runs)
        results = Counter[str]()
        for run in self.runs:
            results.update(run.porcupine)
        rows.append(f"{faults} faults in {len(self.runs)} runs, {anomalies} anomalies; porcupine: {dict(results)}")
        return "\n".join(rows)


def read_tally(file: Path) -> Tally:
    if not file.exists():
        return Tally()
    content = json.loads(file.read_text())
    return Tally(
        runs=[RunRecord(**run) for run in content["runs"]],
        kinds={kind: KindTally(**row) for kind, row in content["kinds"].items()},
    )


def add_to(file: Path, run: RunRecord, scores: dict[str, Score], anomalous_kind: str = "") -> Tally:
    """Several runs may add to one file at the same time."""
    with file.with_name(file.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tally = read_tally(file)
        tally.add(run, scores, anomalous_kind)
        whole = file.with_name(file.name + ".new")
        whole.write_text(json.dumps(asdict(tally), indent=1))
        whole.replace(file)
    return tally
