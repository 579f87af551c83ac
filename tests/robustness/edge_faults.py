"""Faults on the paths beside the main one: `python -m tests.robustness.edge_faults --faults 100 --seed 1`.

Three real nodes with three log directories each, under idempotent, keyed and transactional load. Replicas move between
directories and nodes, topics are deleted and made again under the same name, a disk is full, and nodes die or hang at
the very step. After each fault everything is compared; a kind of fault that never hit its step in flight fails the run.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.robustness.edge_cluster import EdgeCluster, small_disks
from tests.robustness.edge_kinds import DIES, HANGS, KINDS
from tests.robustness.edge_soak import EdgeSoak

LIMITS = {DIES: 2.0, HANGS: 10.0}
"""Seconds without an acknowledgement, on a quiet machine."""


@dataclass
class Score:
    tried: int = 0
    hit: int = 0
    gaps: list[float] = field(default_factory=list)

    @property
    def longest_gap(self) -> float:
        return max(self.gaps, default=0.0)


class Anomaly(AssertionError):
    """What a fault has broken."""


def plan(count: int, seed: int, kinds: Iterable[str]) -> list[str]:
    """All kinds in turn, each turn in another order."""
    chance, names, planned = random.Random(seed), list(kinds), list[str]()
    while len(planned) < count:
        planned += chance.sample(names, len(names))
    return planned[:count]


def run(directory: Path, planned: list[str], seed: int, *, workers: int = 2) -> dict[str, Score]:
    """Raises Anomaly at the first; the scores by kind otherwise."""
    scores = {kind: Score() for kind in planned}
    with small_disks(directory), EdgeCluster(directory) as cluster:
        soak = EdgeSoak(cluster, directory, seed, workers=workers)
        try:
            soak.spread()
            for number, kind in enumerate(planned, 1):
                one_fault(soak, number, kind, scores[kind])
            print(soak.finish(), flush=True)
        except AssertionError:
            with contextlib.suppress(Exception):  # clients of a broken cluster must not hide what is broken
                soak.close()
            raise
        soak.close()
    return scores


def one_fault(
    soak: EdgeSoak, number: int, kind: str, score: Score, kinds: Mapping[str, tuple[str, Any]] = KINDS
) -> None:
    started = time.monotonic()
    hit = soak.cluster.last_step = None
    try:
        soak.begin()
        hit = kinds[kind][1](soak)
        gap = soak.gap()
        soak.verify()
    except AssertionError as error:
        raise Anomaly(f"fault {number}, {kind} ({hit or soak.cluster.last_step}): {error}") from error
    score.tried += 1
    score.hit += hit is not None
    score.gaps.append(gap)
    shown = "MISSED" if hit is None else hit[-110:]
    print(f"{number}. {kind}: {time.monotonic() - started:.1f} s, gap {gap:.2f} s, {shown}", flush=True)


def report(scores: dict[str, Score]) -> str:
    lines = [
        f"{kind}: {score.hit} of {score.tried} in flight, longest gap {score.longest_gap:.2f} s"
        for kind, score in sorted(scores.items())
    ]
    hits, tried = sum(s.hit for s in scores.values()), sum(s.tried for s in scores.values())
    return "\n".join([*lines, f"{hits} of {tried} faults hit their operation in flight, 0 anomalies"])


def never_hit(scores: dict[str, Score]) -> list[str]:
    return sorted(kind for kind, score in scores.items() if not score.hit)


def too_long(scores: dict[str, Score]) -> list[str]:
    """Kinds that kept the producers waiting for longer than their limit."""
    return [
        f"{kind}: {score.longest_gap:.2f} s"
        for kind, score in scores.items()
        if score.longest_gap > LIMITS.get(KINDS[kind][0], 15.0)
    ]


def run_each(directory: Path, count: int, seed: int, kinds: list[str], workers: int) -> list[str]:
    """Each kind in a cluster of its own, so that an anomaly of one hides no other; the anomalies."""
    anomalies = []
    for number, kind in enumerate(kinds):
        place = directory / f"kind-{number}"
        place.mkdir(parents=True)
        try:
            scores = run(place, [kind] * count, seed, workers=workers)
            anomalies += [f"{kind}: never hit in flight" for kind in never_hit(scores)]
        except AssertionError as error:
            anomalies.append(f"{kind}: {error}")
            print(f"ANOMALY {kind}: {error} (see {place})", flush=True)
        else:
            shutil.rmtree(place)
    return anomalies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression: only these kinds of fault")
    parser.add_argument("--each", action="store_true", help="so many faults of each kind, in clusters of their own")
    parser.add_argument("--workers", type=int, default=2, help="processes that copy in transactions")
    parser.add_argument("--dir", type=Path, help="keep the folder here instead of a temporary one")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if re.search(options.only, kind)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-edge-") as temporary:
        directory = options.dir or Path(temporary)
        if options.each:
            anomalies = run_each(directory, options.faults, options.seed, kinds, options.workers)
            print("\n".join([*anomalies, f"{len(anomalies)} of {len(kinds)} kinds with an anomaly"]))
            raise SystemExit(bool(anomalies))
        planned = plan(options.faults, options.seed, kinds)
        scores = run(directory, planned, options.seed, workers=options.workers)
    print(report(scores))
    print(f"{options.faults} faults, seed {options.seed}, {time.monotonic() - started:.0f} s; over: {too_long(scores)}")
    if missed := never_hit(scores):
        raise SystemExit(f"never hit in flight: {missed}")


if __name__ == "__main__":
    main()
