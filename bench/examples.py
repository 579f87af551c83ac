"""`python -m bench.examples [NAME...] [--events N]`: each example as a person runs it, with time, rate and memory.

Memory is the largest proportional set size of the whole family of processes: the command with its log, the JVM of Spark
and the Python workers, sampled twice a second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from bench.process import cpu_seconds, pss_mb
from ottla.examples.catalogue import EXAMPLES
from ottla.model.user_error import UserError

_LOOK_S = 0.5


def measure(name: str, events: int) -> str:
    """A row of the table in docs/examples.md."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "example", name, "--events", str(events)], stdout=subprocess.PIPE, text=True
    )
    peak = cpu = 0.0
    while process.poll() is None:
        peak, cpu = max(peak, pss_mb(process.pid)), max(cpu, cpu_seconds(process.pid))
        time.sleep(_LOOK_S)
    seconds = time.perf_counter() - began
    output = process.stdout.read() if process.stdout is not None else ""
    if process.returncode != 0:
        raise UserError(f"the example {name} has failed: {output}")
    stage = next(line for line in output.splitlines() if line.startswith("pipeline"))
    return f"| {name} | {seconds:.0f} s | {events / seconds:,.0f} | {peak:,.0f} MB | {cpu:.0f} s | {stage.split('  ')[-1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--events", type=int, default=1_000_000)
    arguments = parser.parse_args()
    for name in arguments.names:
        print(measure(name, arguments.events), flush=True)


if __name__ == "__main__":
    main()
