"""One planted bug in a process of its own: seeds run until one of them notices the bug.

    python -m tests.simulation.one_mutant NAME --start 0 --seeds 20 [--seconds 60]

An empty NAME is the product without a bug. Prints one line of JSON: how many seeds ran, and the first violation.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation import drawn_mutations

SEED_SECONDS = 60.0
"""Of CPU time: a seed that takes longer hangs. A healthy seed takes 1 to 3 s."""
CPU_SECONDS = 600
"""Of the process: more only if the bug catches the end of the seed, too."""
MEMORY_BYTES = 4 << 30
PLANTED = "OTTLA_PLANTED"
"""The variable that names the bug for `planting.py`."""
IMPORT = "the import fails"
GC_THRESHOLD = 50_000


class SeedHangs(Exception):
    """The seed does not end."""


class Seeds(NamedTuple):
    """Which seeds may notice a bug, and in which order they run."""

    parity: str
    """`odd`: quorums. `even`: clusters of whole nodes. `all`: both."""
    work: tuple[str, ...] = ()
    """Kinds of work that execute the bug: of the even seeds, those with this work run first."""

    def first(self, count: int) -> list[int]:
        """Of `all` seeds three of four are odd: a quorum takes a sixth of the time of a cluster of whole nodes."""
        odd, even = [1 + 2 * index for index in range(count)], [2 + 2 * index for index in range(count)]
        if self.work:
            even.sort(key=lambda seed: len(set(self.work) - kinds_of(seed)))
        if self.parity == "all":
            odd_count = count - count // 4
            return [seed for index in range(0, odd_count, 3) for seed in (*odd[index : index + 3], even[index // 3])][
                :count
            ]
        return odd if self.parity == "odd" else even


def kinds_of(seed: int) -> set[str]:
    """The kinds of group work of a seed, without a run. Imported late, because a drawn bug comes before the imports."""
    from ottla.simulation import group_work

    return group_work._drawn_kinds(group_work._dice_of(seed))


def plant(name: str, drawn: Path = drawn_mutations.LIST) -> Seeds:
    for mutation in drawn_mutations.read_list(drawn):
        if mutation.name == name:
            drawn_mutations.plant(mutation)
            return Seeds(mutation.seeds, mutation.work)
    import pytest

    from tests.simulation import planted

    parity, change = planted.TABLES[name]
    change(pytest.MonkeyPatch())
    return Seeds(parity, planted.WORK.get(name, ()))


@contextlib.contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    def hang(_signal: int, _frame: Any) -> None:
        raise SeedHangs(f"the seed does not end in {seconds:.0f} s of CPU time")

    signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def violation_of(seed: int) -> str | None:
    from ottla.simulation.cluster import run_seed

    try:
        with ended_after(SEED_SECONDS):
            return run_seed(seed).violation
    except Exception as error:  # noqa: BLE001 - a bug may break the cluster before or after the seed's own judgement
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.name}, {where.filename.rpartition('/')[2]})"


def judged(seeds: list[int], seconds: float | None, *, to_the_end: bool = False) -> dict[str, Any]:
    """Until the first violation, or `to_the_end`, which is for the product without a bug."""
    began, tried = time.process_time(), 0
    broken: list[list[Any]] = []
    for seed in seeds:
        tried += 1
        violation = violation_of(seed)
        if violation is not None:
            broken.append([seed, violation])
            if not to_the_end:
                break
        if seconds is not None and time.process_time() - began > seconds:
            break
    return {"seeds": tried, "broken": broken, "cpu_s": round(time.process_time() - began, 1)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.one_mutant", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--start", type=int, default=0, help="the number of the first seed among the mutant's seeds")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default: %(default)s)")
    parser.add_argument("--of", type=int, default=200, help="of how many seeds in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="of CPU time")
    parser.add_argument("--healthy", help="these seeds of the product without a bug, separated by commas")
    parser.add_argument("--list", type=Path, default=drawn_mutations.LIST, help="the list of drawn bugs")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    order = plant(options.name, options.list) if options.name else Seeds("all")
    from ottla.env import logging

    logging.configure(io.StringIO(), level="error")
    try:
        import ottla.simulation.cluster  # noqa: F401 - before the collector forgets what is there
    except Exception as error:  # noqa: BLE001 - a planted bug may break the import
        print(json.dumps({"seeds": 1, "broken": [[1, f"{IMPORT}: {error!r}"]], "cpu_s": time.process_time()}))
        return 0
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    if options.healthy is not None:
        seeds = [int(seed) for seed in options.healthy.split(",")]
    else:
        seeds = order.first(options.of)[options.start : options.start + options.seeds]
    print(json.dumps(judged(seeds, options.seconds, to_the_end=not options.name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
