"""`python -m bench.test_kit`: what a test pays for `ottla.testing`.

Medians of wall time and of this process's CPU time: the start and the stop of a broker, of a broker with a schema
registry, and of a cluster; a session of tests with a topic of its own for each; the import of `ottla.testing` in a fresh
interpreter. The targets hold for a quiet machine. CPU time counts all threads; waits for the disk count as wall time only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from ottla.testing import Broker

IMPORT = "import time; a, b = time.perf_counter(), time.process_time(); {code}; print(time.perf_counter() - a, time.process_time() - b)"
IMPORTS = {"import ottla.testing": "import ottla.testing", "with Broker": "from ottla.testing import Broker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    wall_ms: float
    cpu_ms: float


def cost_of(action: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Cost(wall_ms=(time.perf_counter() - wall) * 1000, cpu_ms=(time.process_time() - cpu) * 1000)


def median(costs: list[Cost]) -> Cost:
    return Cost(
        wall_ms=statistics.median(cost.wall_ms for cost in costs),
        cpu_ms=statistics.median(cost.cpu_ms for cost in costs),
    )


def lives(rounds: int, *, nodes: int = 1, registry: bool = False) -> tuple[Cost, Cost]:
    """The medians of start and of stop. The first start also imports, and does not count."""
    starts, stops = [], []
    for number in range(rounds + 1):
        broker = Broker(nodes=nodes, registry=registry)
        start, stop = cost_of(broker.start), cost_of(broker.stop)
        if number:
            starts.append(start)
            stops.append(stop)
    return median(starts), median(stops)


def session(tests: int) -> Cost:
    """Each test creates a topic, writes a record and reads the topic."""

    def run() -> None:
        with Broker() as broker:
            for number in range(tests):
                topic = broker.topic(f"test-{number}")
                broker.produce(topic, {"id": number})
                if [record.value for record in broker.records(topic)] != [{"id": number}]:
                    raise RuntimeError(f"{topic} has other records than the test wrote")

    return cost_of(run)


def import_cost(code: str, rounds: int) -> Cost:
    costs = []
    for _ in range(rounds):
        command = [sys.executable, "-c", IMPORT.format(code=code)]
        wall, cpu = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        costs.append(Cost(wall_ms=float(wall) * 1000, cpu_ms=float(cpu) * 1000))
    return median(costs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.test_kit", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21, help="starts of each kind (default: 21)")
    parser.add_argument("--tests", type=int, default=200, help="tests of the session (default: 200)")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; medians of {options.rounds}")
    rows: list[tuple[str, Cost, str]] = []
    for name, nodes, registry, target in (
        ("Broker()", 1, False, "60 ms"),
        ("Broker(registry=True)", 1, True, "200 ms"),
        ("Broker(nodes=3)", 3, False, "none"),
    ):
        start, stop = lives(options.rounds, nodes=nodes, registry=registry)
        rows += [(f"{name} start", start, target), (f"{name} stop", stop, "none")]
    rows += [(f"{name}: import", import_cost(code, options.rounds), "150 ms") for name, code in IMPORTS.items()]
    rows.append((f"{options.tests} tests, a topic each", session(options.tests), "20 s"))
    for name, cost, target in rows:
        print(f"{name:32} {cost.wall_ms:9.1f} ms wall {cost.cpu_ms:9.1f} ms CPU   target {target}")


if __name__ == "__main__":
    main()
