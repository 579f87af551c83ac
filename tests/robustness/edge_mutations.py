"""The bugs that the edge faults were written for, planted again: `python -m tests.robustness.edge_mutations`.

Each is put into a copy of the sources, and the faults that should meet it run there. A bug that they do not find means
that the soak proves less than it says. `test_edge_faults` checks that each still has its place in the sources.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.server_process import ROOT, environment

LOG, COORDINATOR = "src/ottla/log", "src/ottla/coordinator/groups"


@dataclass(frozen=True, kw_only=True)
class Mutation:
    name: str
    changes: list[tuple[str, str, str]]
    """File, the text as it is, the text as it was or might be."""
    kinds: str
    """The faults that should find it."""
    faults: int = 3


SOURCE_FIRST = (
    f"{LOG}/moves.py",
    "        self._name(future, current, now_ms)\n        del self._copies[partition]\n",
    (
        "        self._discarded.discard(current, DELETE_DIR_SUFFIX, now_ms)\n"
        "        self._name(future, current, now_ms)\n        del self._copies[partition]\n"
    ),
)
MUTATIONS = [
    Mutation(
        name="a copy is compared by its end offset only",
        changes=[
            (
                f"{LOG}/future_copy.py",
                "        end = min(future.log_end_offset, current.log_end_offset)\n        if future.latest_epoch",
                (
                    "        end = min(future.log_end_offset, current.log_end_offset)\n        return end\n"
                    "        if future.latest_epoch"
                ),
            )
        ],
        kinds="move: truncated under it",
    ),
    Mutation(
        name="the source is put aside before the copy has its name",
        changes=[SOURCE_FIRST],
        kinds="move: the target fails",
    ),
    Mutation(
        name="and a copy without its source is not adopted",
        changes=[
            SOURCE_FIRST,
            (
                f"{LOG}/moves.py",
                "if orphan is None or orphan.topic_id != topic_id:",
                "if orphan is None or orphan.topic_id == topic_id:",
            ),
        ],
        kinds="move: killed after the source's rename",
    ),
    Mutation(
        name="a move is not resumed after a restart",
        changes=[
            (
                "src/ottla/replication/moves.py",
                "        future = self._logs.moves.future(partition.topic_partition)\n        if future is not None:\n",
                "        future = None\n        if future is not None:\n",
            )
        ],
        kinds="move: killed while copying",
    ),
    Mutation(
        name="how far a log is clean is kept by its name",
        changes=[
            (
                f"{LOG}/cleaner.py",
                "        offset = log.offsets.cleaned_up_to\n",
                "        offset = _BY_NAME.get((log.log_dir.path, log.topic_partition), log.offsets.cleaned_up_to)\n",
            ),
            (
                f"{LOG}/cleaner.py",
                "        log.offsets.cleaned_up_to = end_offset\n",
                (
                    "        log.offsets.cleaned_up_to = end_offset\n"
                    "        _BY_NAME[log.log_dir.path, log.topic_partition] = end_offset\n"
                ),
            ),
            (f"{LOG}/cleaner.py", "\n\nclass Cleaner:\n", "\n\n_BY_NAME: dict[object, int] = {}\n\n\nclass Cleaner:\n"),
        ],
        kinds="deletion: (killed before the rename|offsets pending)$",
        faults=4,
    ),
    Mutation(
        name="the cleaner goes back to a log whose disk is full",
        changes=[
            (
                f"{LOG}/cleaner.py",
                "(-candidate.log.cleaning_refused, candidate.cleanable_ratio)",
                "candidate.cleanable_ratio",
            )
        ],
        kinds="full disk",
    ),
    Mutation(
        name="pending offsets of a deleted topic count for its namesake",
        changes=[
            (
                f"{COORDINATOR}/offset_store.py",
                "        for pending in self._pending.values():\n            for (group_id, target), offset",
                "        for pending in ():\n            for (group_id, target), offset",
            ),
            (f"{COORDINATOR}/transactional_offsets.py", "            topic_id,\n", "            Uuid(bytes(16)),\n"),
        ],
        kinds="deletion: offsets pending$",
    ),
]


def misplaced(mutation: Mutation) -> list[str]:
    """Changes that do not apply to the sources as they are."""
    texts = [(file, (ROOT / file).read_text(), old) for file, old, _ in mutation.changes]
    return [
        f"{mutation.name}: {file} has {text.count(old)} of {old!r}" for file, text, old in texts if text.count(old) != 1
    ]


def plant(mutation: Mutation, root: Path) -> None:
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in mutation.changes:
        path = root / file
        path.write_text(path.read_text().replace(old, new))


def run_planted(mutation: Mutation, command: list[str]) -> subprocess.CompletedProcess[str]:
    """A module of the tests over the sources with the bug."""
    with tempfile.TemporaryDirectory(prefix="ottla-planted-") as temporary:
        root = Path(temporary)
        plant(mutation, root)
        return subprocess.run(
            [sys.executable, "-m", *command, "--faults", str(mutation.faults), "--only", mutation.kinds],
            cwd=root, env={**environment(), "PYTHONPATH": f"{root / 'src'}:{root}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip


def is_found(mutation: Mutation, seed: int) -> bool:
    """Whether the faults find it; prints what they say."""
    command = ["tests.robustness.edge_faults", "--each", "--workers", "1", "--seed", str(seed)]
    done = run_planted(mutation, command)
    anomalies = [line for line in done.stdout.splitlines() if line.startswith("ANOMALY")]
    for line in anomalies or [done.stdout[-1500:], done.stderr[-1500:]]:
        print(f"    {line[:400]}", flush=True)
    return done.returncode != 0 and bool(anomalies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression: only the planted bugs of such a name")
    options = parser.parse_args()
    missed = []
    for mutation in MUTATIONS:
        if re.search(options.only, mutation.name):
            started = time.monotonic()
            found = is_found(mutation, options.seed)
            print(f"{'found' if found else 'MISSED'}: {mutation.name} ({time.monotonic() - started:.0f} s)", flush=True)
            missed += [] if found else [mutation.name]
    raise SystemExit(f"not found: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
