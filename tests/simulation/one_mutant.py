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
from typing import Any

from tests.simulation import drawn_mutations

SEED_SECONDS = 60.0
"""Of CPU time: a seed that takes longer hangs. A healthy seed takes 1 to 3 s."""
CPU_SECONDS = 600
"""Of the process: more only if the bug catches the end of the seed, too."""
MEMORY_BYTES = 4 << 30
IMPORT = "the import fails"
GC_THRESHOLD = 50_000


class SeedHangs(Exception):
    """The seed does not end."""


def plant(name: str) -> str:
    """Which seeds may notice the bug: `all`, `odd` or `even`."""
    if not name:
        return "all"
    for mutation in drawn_mutations.read_list():
        if mutation.name == name:
            drawn_mutations.plant(mutation)
            return mutation.seeds
    import pytest

    from tests.simulation import planted

    kind, change = planted.TABLES[name]
    change(pytest.MonkeyPatch())
    return kind


def seed_at(kind: str, index: int) -> int:
    """Of `all` seeds three of four are odd: a quorum takes a sixth of the time of a cluster of whole nodes."""
    if kind == "even" or (kind == "all" and index % 4 == 3):
        return 2 + 2 * (index if kind == "even" else index // 4)
    return 1 + 2 * (index if kind == "odd" else index - index // 4)


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


def judged(name: str, seeds: list[int] | range, seconds: float | None, kind: str) -> dict[str, Any]:
    """`seeds` are the indexes of the mutant's seeds; for the product without a bug, the seeds."""
    began, tried = time.process_time(), 0
    broken: list[list[Any]] = []
    for index in seeds:
        seed = seed_at(kind, index) if name else index
        tried += 1
        violation = violation_of(seed)
        if violation is not None:
            broken.append([seed, violation])
            if name:
                break
        if seconds is not None and time.process_time() - began > seconds:
            break
    return {"seeds": tried, "broken": broken, "cpu_s": round(time.process_time() - began, 1)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.one_mutant", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--start", type=int, default=0, help="the number of the first seed among the mutant's seeds")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--seconds", type=float, help="of CPU time")
    parser.add_argument("--healthy", help="these seeds of the product without a bug, separated by commas")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    kind = plant(options.name)
    from ottla.env import logging

    logging.configure(io.StringIO(), level="error")
    try:
        import ottla.simulation.cluster  # noqa: F401 - before the collector forgets what is there
    except Exception as error:  # noqa: BLE001 - a planted bug may break the import
        seed = seed_at(kind, options.start)
        print(json.dumps({"seeds": 1, "broken": [[seed, f"{IMPORT}: {error!r}"]], "cpu_s": time.process_time()}))
        return 0
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    seeds: list[int] | range = range(options.start, options.start + options.seeds)
    if options.healthy is not None:
        seeds = [int(seed) for seed in options.healthy.split(",")]
    print(json.dumps(judged(options.name, seeds, options.seconds, kind)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
