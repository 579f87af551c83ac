"""Bugs of outputs, planted one by one, that the kill rounds must find: `python -m tests.pipelines.round_mutations`.

Each is put into a copy of the sources. The rounds hit the driver there at the moment in which the bug shows: a batch that is
staged or committed and not done for Spark. `test_kill_rounds` checks that each bug still has its place in the sources.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.edge_mutations import Mutation, plant

OUTPUTS = "src/ottla/pipelines/outputs"


@dataclass(frozen=True, kw_only=True)
class Planted(Mutation):
    aim: str
    kinds: str = "driver"
    faults: int = 4
    """Rounds."""


LOOKS_BACK = (
    f"{OUTPUTS}/writer.py",
    "        self._is_done = last is not None and last >= self._work.version and not merges\n",
    "        self._is_done = False and last is not None and merges\n",
)
PLANTED = [
    Planted(
        name="SQL: a commit merges every staged attempt of its version",
        aim="to-sql:staged",
        changes=[
            (
                f"{OUTPUTS}/sql.py",
                "                for rows in sources:\n                    self._merge_source(cursor, dialect, rows)\n",
                (
                    "                for name in self._staged_names(cursor, dialect, self._prefix(work.application)):\n"
                    "                    if _parts(name, self._prefix(work.application))[0] == work.version:\n"
                    "                        rows = SqlStaged(application='', attempt='', rows=1, task=0, source=name)\n"
                    "                        self._merge_source(cursor, dialect, rows)\n"
                ),
            )
        ],
    ),
    Planted(
        name="SQL: a version that is there is written again",
        aim="to-sql:committed",
        changes=[
            LOOKS_BACK,
            (
                f"{OUTPUTS}/sql.py",
                "                if not self._take(cursor, dialect, work):\n                    return False\n",
                "                self._take(cursor, dialect, work)\n",
            ),
        ],
    ),
    Planted(
        name="Delta: a version that is there is written again",
        aim="to-delta:committed",
        changes=[
            LOOKS_BACK,
            (
                f"{OUTPUTS}/delta.py",
                "            if last is not None and last >= work.version:\n                return False\n",
                "",
            ),
        ],
    ),
    Planted(
        name="topic: a task does not look for its marker",
        aim="to-log:planned",
        faults=8,
        changes=[("src/ottla/pipelines/writer.py", "        done = attempt.done()\n", "        done = None\n")],
    ),
]


def is_found(planted: Planted, seed: int, minutes: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="ottla-planted-") as temporary:
        root = Path(temporary)
        plant(planted, root)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tests.pipelines.rounds", "--rounds", str(planted.faults), "--seed", str(seed),
             "--hit", planted.kinds, "--aim", planted.aim, "--verdict-every", "1", "--minutes", str(minutes)],
            cwd=root, env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    verdict = re.search(r'"verdict": "(.*)"', done.stdout)
    print(f"    {verdict[1][:400] if verdict else done.stdout[-1500:] + done.stderr[-1500:]}", flush=True)
    return verdict is not None and verdict[1].startswith("Anomaly")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--only", default="", help="A regular expression: only the planted bugs of such a name.")
    parser.add_argument("--minutes", type=float, default=12, help="No round of a bug begins later (default: 12).")
    options = parser.parse_args()
    missed = []
    for planted in PLANTED:
        if re.search(options.only, planted.name):
            begun = time.monotonic()
            was_found = is_found(planted, options.seed, options.minutes)
            print(
                f"{'found' if was_found else 'MISSED'}: {planted.name} ({time.monotonic() - begun:.0f} s)", flush=True
            )
            missed += [] if was_found else [planted.name]
    raise SystemExit(f"not found: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
