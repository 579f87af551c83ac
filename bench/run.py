"""The order of a run: load by load, round by round, case by case, the servers taking turns at going first."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from bench.bed import Bed
from bench.loads import (
    Case,
    cluster,
    connections,
    consume,
    groups,
    latency,
    memory,
    partitions,
    produce,
    requests,
    start,
    transactions,
)
from bench.measure import ROLES, Table
from bench.plan import Sizes

# Loads on the shared servers come first; the others each want a fresh one.
LOADS: dict[str, Callable[[Sizes], list[Case]]] = {
    produce.NAME: produce.cases,
    consume.NAME: consume.cases,
    requests.NAME: requests.cases,
    latency.NAME: latency.cases,
    transactions.NAME: transactions.cases,
    groups.NAME: groups.cases,
    start.NAME: start.cases,
    memory.NAME: memory.cases,
    partitions.NAME: partitions.cases,
    connections.NAME: connections.cases,
    cluster.NAME: cluster.cases,
}


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(bed: Bed, loads: Sequence[str], only: str | None = None) -> Table:
    """Measure. A case that failed for a server is not tried again for it: its error stands in the result."""
    table = Table()
    failed: set[tuple[str, str, str]] = set()
    for name in loads:
        cases = [case for case in LOADS[name](bed.sizes) if only is None or only in case.label]
        for round_number in range(bed.sizes.rounds):
            order = ROLES if round_number % 2 == 0 else ROLES[::-1]
            for case in cases:
                for role in order:
                    if (case.load, case.label, role) in failed:
                        continue
                    if not _one(bed, table, case, role, round_number):
                        failed.add((case.load, case.label, role))
    return table


def _one(bed: Bed, table: Table, case: Case, role: str, round_number: int) -> bool:
    title = f"{case.load}: {case.label} [{bed.kinds[role].name}, round {round_number + 1}]"
    began = time.monotonic()
    try:
        measured = case.run(bed, role)
    except Exception as error:  # noqa: BLE001 - one broken row must not lose the others; it is reported as failed
        text = f"{type(error).__name__}: {error}"
        # Only its first line goes into the result, which is published: the rest may hold paths of this machine.
        table.fail(case.load, case.label, role, case.quantities, text.partition("\n")[0][:500], case.x)
        _say(f"{title}: FAILED: {text}")
        return False
    table.add(case.load, case.label, role, measured, case.x)
    values = ", ".join(f"{quantity.name} {value:.4g} {quantity.unit}" for quantity, value in measured.items())
    _say(f"{title}: {values} ({time.monotonic() - began:.1f} s)")
    return True
