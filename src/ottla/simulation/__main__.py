"""`make sim SEED=N`: run seeds, report the rate; a failing one prints how to see it again, and its last events."""

from __future__ import annotations

import argparse
import gc
import sys
import time

from ottla.env.logging import configure
from ottla.simulation.cluster import Outcome, run_seed

TRACE_LINES = 60
GC_THRESHOLD = 50_000
"""A world lives for half a second and is dropped as a whole, so garbage collection in between rarely pays."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone and show its trace when it fails")
    parser.add_argument("--first", type=int, default=1, help="the first of a row of seeds")
    parser.add_argument("--count", type=int, default=100, help="how many")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--trace", action="store_true", help="print the whole trace")
    options = parser.parse_args(arguments)
    configure(level="error")
    if options.seed is not None:
        return _run_seed(options.seed, whole=options.trace)
    return _row(options.first, options.count, options.seconds)


def _run_seed(seed: int, *, whole: bool) -> int:
    outcome = run_seed(seed, trace=True)
    if whole or outcome.violation:
        for line in outcome.trace if whole else outcome.trace[-TRACE_LINES:]:
            print(line if whole else line[:400])
    print(_summary(outcome))
    return 1 if outcome.violation else 0


def _row(first: int, count: int, seconds: float | None) -> int:
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    began, used = time.perf_counter(), time.process_time()
    ran = events = faults = elections = committed = 0
    failed: list[Outcome] = []
    for seed in range(first, first + count):
        if seconds is not None and time.perf_counter() - began > seconds:
            break
        outcome = run_seed(seed)
        ran += 1
        events += outcome.events
        faults += outcome.faults
        elections += outcome.elections
        committed += outcome.committed
        if outcome.violation:
            failed.append(outcome)
            print(_summary(outcome))
            print(f"  see it again: make sim SEED={seed}")
    took = time.process_time() - used  # a shared machine gives only a part of its core
    print(
        f"{ran} seeds in {took:.1f} s of one core ({ran / took * 3600:,.0f} an hour), {events:,} events, "
        f"{faults:,} faults, {elections:,} elections, {committed:,} records committed, {len(failed)} failed"
    )
    return 1 if failed else 0


def _summary(outcome: Outcome) -> str:
    verdict = outcome.violation or "all promises kept"
    return (
        f"seed {outcome.seed}: {verdict} ({outcome.shape.voters} voters, {outcome.shape.observers} observers, "
        f"{'dynamic' if outcome.shape.dynamic else 'static'}; {outcome.events} events, {outcome.faults} faults, "
        f"{outcome.elections} elections, {outcome.committed} committed, {outcome.answered} answers)"
    )


if __name__ == "__main__":
    sys.exit(main())
