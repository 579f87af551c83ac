"""`make mutants`: every planted bug, run over seeds until one of them notices it; a table of found and survived.

    python -m tests.simulation.mutants [--seeds 200] [--seconds S] [--jobs N] [--add-to FILE] [NAME ...]

Each bug runs in a process of its own: the hand-written bugs of the tables, and the bugs that a tool has drawn
(`drawn_mutations.toml`). `--seeds` is the bound for one mutant over all runs, `--seconds` (of CPU time) for one mutant in
this run. With `--add-to` the verdicts add up in FILE: a later run goes on where this run has ended, and runs no mutant
again that was found. A seed counts only if the product without the bug survives this seed.

For a bug that seeds do not find, `survivors.py` or the list of drawn bugs has the reason and a schedule: a test that fails
with the bug. This test runs in place of the seeds.

The exit code is 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation import drawn_mutations, one_mutant
from tests.simulation.mutant_results import Progress, Results
from tests.simulation.planted import AREAS, name_of
from tests.simulation.survivors import SURVIVORS, Survivor

SEEDS = 200
TEST_FAILED = 1
"""What pytest exits with; an error in the collection has a different code."""
SLICE = 20
"""Seeds of one process."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    area: str
    identity: str
    """What results are kept by: a drawn bug's name has a line number, its identity has none."""
    survivor: Survivor | None = None
    equivalent: str = ""


def all_mutants() -> Iterator[Mutant]:
    for area, (_, table) in AREAS.items():
        for plain in table:
            name = name_of(area, plain)
            yield Mutant(name, area, name, SURVIVORS.get(name))
    for drawn in drawn_mutations.read_list():
        survivor = Survivor(drawn.survives, drawn.schedule) if drawn.survives else None
        yield Mutant(drawn.name, drawn.area, drawn.site.identity, survivor, drawn.equivalent)


# --------------------------------------------------------------------------------------------------------------- running


class Run:
    def __init__(self, results: Results, seeds: int, seconds: float | None) -> None:
        self.results = results
        self._seeds = seeds
        self._seconds = seconds

    def judge(self, mutant: Mutant) -> Progress:
        """Run slices of seeds until the bug is found or the bounds are reached; of a listed survivor, the schedule."""
        progress = self.results.of(mutant.identity)
        if mutant.survivor is not None:
            if mutant.survivor.schedule and not progress.by_schedule:
                self.results.add({"mutant": mutant.identity, "by_schedule": _fails(mutant)})
            return progress
        began_cpu_s = progress.cpu_s
        while not progress.found and progress.seeds < self._seeds:
            left_s = None if self._seconds is None else self._seconds - (progress.cpu_s - began_cpu_s)
            if left_s is not None and left_s <= 0:
                break
            count = min(SLICE, self._seeds - progress.seeds)
            place = ("--start", str(progress.seeds), "--seeds", str(count), "--of", str(self._seeds))
            answer = _process(mutant.name, *place, seconds=left_s)
            seed, violation = answer["broken"][0] if answer["broken"] else (None, None)
            if seed is not None and not self._is_healthy(seed):
                seed = violation = None
            row = {"mutant": mutant.identity, "seeds": answer["seeds"], "cpu_s": answer["cpu_s"]}
            self.results.add({**row, "seed": seed, "violation": violation})
        return progress

    def _is_healthy(self, seed: int) -> bool:
        """Whether the product without a bug survives the seed."""
        if seed not in self.results.healthy and seed not in self.results.broken:
            answer = _process("", "--healthy", str(seed))
            self.results.add({"healthy": [] if answer["broken"] else [seed], "broken": answer["broken"]})
        return seed in self.results.healthy


def _fails(mutant: Mutant) -> bool:
    """Whether the listed schedule fails with the bug, and passes without the bug."""
    if mutant.survivor is None:
        return False
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    planted = {**os.environ, one_mutant.PLANTED: mutant.name}
    test = mutant.survivor.schedule
    plugin = ["-p", "tests.simulation.planting"]
    with_bug = subprocess.run([*command, *plugin, test], capture_output=True, check=False, env=planted)
    without_bug = subprocess.run([*command, test], capture_output=True, check=False)
    return (with_bug.returncode, without_bug.returncode) == (TEST_FAILED, 0)


def _process(name: str, *arguments: str, seconds: float | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.simulation.one_mutant", name, *arguments]
    if seconds is not None:
        command += ["--seconds", str(seconds)]
    # Without hashes of strings that differ from process to process, a seed repeats itself also under a planted bug.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode < 0:
        violation = f"the process ends by signal {-done.returncode}"
        return {"seeds": 1, "broken": [[1, violation]], "cpu_s": float(one_mutant.CPU_SECONDS)}
    if done.returncode:
        raise RuntimeError(f"{name} does not run: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# ------------------------------------------------------------------------------------------------------------- the table


def verdict(mutant: Mutant, progress: Progress, seeds: int) -> str:
    if progress.found:
        return "found"
    if mutant.equivalent:
        return "equivalent"
    if progress.by_schedule:
        return "by schedule"
    if progress.seeds >= seeds:
        return "survived"
    return "survives so far" if progress.seeds else "not run"


def line(mutant: Mutant, progress: Progress, seeds: int) -> str:
    end = verdict(mutant, progress, seeds)
    reason = progress.violation or (mutant.survivor.reason if mutant.survivor is not None else mutant.equivalent)
    name = mutant.name.removeprefix(f"{mutant.area}/")
    return f"{mutant.area:<18} {name:<58} {progress.cpu_s:6.1f} s  {end} {progress.seeds:>3}  {(reason or '')[:110]}"


def totals(mutants: list[Mutant], results: Results, seeds: int) -> Iterator[str]:
    """A row for each area, and one for all."""
    kinds = ("found", "by schedule", "survived", "survives so far", "equivalent", "not run")
    yield f"{'area':<18} {'':>5} " + " ".join(f"{kind:>15}" for kind in kinds)
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        kind = verdict(mutant, results.of(mutant.identity), seeds)
        for area in (mutant.area, "all"):
            counts.setdefault(area, Counter())[kind] += 1
    for area, row in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
        yield f"{area:<18} {row.total():>5} " + " ".join(f"{row[kind]:>15}" for kind in kinds)


def _chosen(names: list[str]) -> list[Mutant]:
    mutants = list(all_mutants())
    matches: Callable[[Mutant], bool] = lambda m: any(  # noqa: E731 - one condition
        name in (m.name, m.area, m.area.partition("/")[0], m.name.removeprefix(f"{m.area}/")) for name in names
    )
    return [mutant for mutant in mutants if not names or matches(mutant)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds for one mutant (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="CPU seconds for one mutant in this run (default: no bound)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--add-to", type=Path, help="a file that keeps the verdicts of all runs")
    parser.add_argument("--table", action="store_true", help="print the table of the file, and run nothing")
    parser.add_argument("names", nargs="*", help="only these mutants or areas")
    options = parser.parse_args(arguments)
    results, mutants = Results(options.add_to), _chosen(options.names)
    run = Run(results, options.seeds, options.seconds)
    if options.table:
        for mutant in mutants:
            print(line(mutant, results.of(mutant.identity), options.seeds))
    else:
        # What has cost least so far comes first: most bugs are found in few seeds.
        pending = sorted(
            (mutant for mutant in mutants if not mutant.equivalent),
            key=lambda mutant: (mutant.survivor is not None, results.of(mutant.identity).cpu_s),
        )
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, progress in zip(pending, pool.map(run.judge, pending), strict=True):
                print(line(mutant, progress, options.seeds), flush=True)
    print("\n".join(totals(mutants, results, options.seeds)))
    return _summary(mutants, results, options.seeds)


def _summary(mutants: list[Mutant], results: Results, seeds: int) -> int:
    judged = [mutant for mutant in mutants if not mutant.equivalent]
    progress = [results.of(mutant.identity) for mutant in judged]
    number, cpu_s = sum(row.found for row in progress), sum(row.cpu_s for row in progress)
    print(f"{number} of {len(judged)} mutants found, in {cpu_s:.0f} s of one core")
    for seed, violation in sorted(results.broken.items()):
        print(f"seed {seed} fails without a planted bug: {violation}")
    pairs = zip(judged, progress, strict=True)
    return int(any(verdict(mutant, row, seeds) == "survived" for mutant, row in pairs))


if __name__ == "__main__":
    sys.exit(main())
