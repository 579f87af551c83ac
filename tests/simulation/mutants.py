"""`make mutants`: every planted bug, run over seeds until one of them notices it; a table of found and survived.

    python -m tests.simulation.mutants [--seeds 40] [--seconds 120] [NAME ...]

`--seeds` and `--seconds` (of CPU time) are the bounds for one mutant. The exit code is 1 if a mutant survives that is not
in `SURVIVORS`.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from ottla.env import logging
from ottla.simulation.cluster import run_seed
from tests.simulation.data_mutations import DATA_MUTATIONS
from tests.simulation.fault_mutations import FAULT_MUTATIONS
from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.replica_mutations import REPLICA_MUTATIONS

SEEDS = 40
CPU_SECONDS = 120.0
SURVIVORS: dict[str, str] = {
    "votes_twice": "voters stand one after the other: test_schedules.py",
    "keeps_its_epoch_when_it_votes": "voters stand one after the other: test_schedules.py",
    "compares_a_moved_replica_by_its_end_alone": "a cut between two steps of a move is rare: test_fault_schedules.py",
}
"""Mutants that random seeds do not find, with the reason and the test that does."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    area: str
    plant: Callable[[pytest.MonkeyPatch], None]
    first_seed: int
    """Odd seeds are quorums; even seeds are clusters of whole nodes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    seeds: int
    violation: str | None
    cpu_s: float


def all_mutants() -> Iterator[Mutant]:
    for area, table, first_seed in (
        ("quorum", MUTATIONS, 1), ("replication", REPLICA_MUTATIONS, 2), ("data", DATA_MUTATIONS, 2),
        ("groups", GROUP_MUTATIONS, 2),
        ("faults", FAULT_MUTATIONS, 2),
    ):  # fmt: skip
        for name, plant in table.items():
            yield Mutant(name, area, plant, first_seed)


def judge(mutant: Mutant, seeds: int, cpu_s: float) -> Verdict:
    began = time.process_time()
    tried = 0
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in range(mutant.first_seed, mutant.first_seed + 2 * seeds, 2):
            tried += 1
            outcome = run_seed(seed)
            if outcome.violation is not None:
                return Verdict(mutant, tried, outcome.violation, time.process_time() - began)
            if time.process_time() - began > cpu_s:
                break
    return Verdict(mutant, tried, None, time.process_time() - began)


def line(verdict: Verdict) -> str:
    mutant = verdict.mutant
    if verdict.violation is not None:
        end = f"found in {verdict.seeds:>3}  {verdict.violation[:90]}"
    else:
        end = f"SURVIVED {verdict.seeds:>3}  {SURVIVORS.get(mutant.name, '')}"
    return f"{mutant.area:<12} {mutant.name:<48} {verdict.cpu_s:6.1f} s  {end}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds for one mutant (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=CPU_SECONDS, help="CPU seconds for one mutant")
    parser.add_argument("names", nargs="*", help="only these mutants or areas")
    options = parser.parse_args(arguments)
    logging.configure(io.StringIO(), level="error")
    verdicts = []
    for mutant in all_mutants():
        if not options.names or mutant.name in options.names or mutant.area in options.names:
            verdicts.append(judge(mutant, options.seeds, options.seconds))
            print(line(verdicts[-1]), flush=True)
    noticed = sum(verdict.violation is not None for verdict in verdicts)
    print(f"{noticed} of {len(verdicts)} mutants found, in {sum(v.cpu_s for v in verdicts):.0f} s of one core")
    return int(any(v.violation is None and v.mutant.name not in SURVIVORS for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
