"""Digests of the traces of seeds, from a process of its own: `python -m tests.simulation.digests [--without-uvloop] SEED...`.

Any Python that Ottla supports runs this file with the core dependencies alone.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_UVLOOP = "--without-uvloop"


def digests(interpreter: str, *arguments: str | int, hash_seed: int) -> list[str]:
    """A line for each seed: its number, its events, the checksum of its trace, its verdict."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT / "src")}
    command = [interpreter, "-m", "tests.simulation.digests", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main(arguments: Sequence[str]) -> None:
    if WITHOUT_UVLOOP in arguments:
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # as if it was not installed
    from ottla.env import logging
    from ottla.simulation.cluster import run_seed

    logging.configure(io.StringIO(), level="error")
    for seed in (int(argument) for argument in arguments if argument != WITHOUT_UVLOOP):
        outcome = run_seed(seed, trace=True)
        checksum = zlib.crc32("\n".join(outcome.trace).encode())
        print(seed, outcome.events, f"{checksum:08x}", outcome.violation or "kept")


if __name__ == "__main__":
    main(sys.argv[1:])
