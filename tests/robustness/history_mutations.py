"""Bugs of the product that both checkers of histories must find on real nodes, and anomalies planted in a history.

`python -m tests.robustness.history_mutations` runs the bugs. An anomaly changes the lines of a recorded history, as a
cluster with such a bug would have written them.
"""

from __future__ import annotations

import argparse
import copy
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.robustness.edge_mutations import Mutation, run_planted
from tests.robustness.fault_tally import RunRecord, read_tally
from tests.robustness.histories import (
    ABORTED,
    APPEND,
    ASK,
    COMMIT,
    COMPLETE,
    FETCH_OFFSET,
    INVOKE,
    OK,
    READ,
    SNAPSHOT,
    TRANSACT,
)

Line = dict[str, Any]
Anomaly = Callable[[list[Line]], None]

BUGS = [
    Mutation(
        name="acks=all is answered before the followers have the records",
        changes=[
            (
                "src/ottla/broker/handlers/produce.py",
                "        if self._uncommitted:\n            return self._wait(",
                "        if not self._uncommitted and self._uncommitted:\n            return self._wait(",
            )
        ],
        kinds="others hung, then killed",
        faults=4,
    ),
    Mutation(
        name="a batch that is sent again is appended again",
        changes=[
            (
                "src/ottla/log/producer_state.py",
                "    def duplicate_of(",
                "    def duplicate_of(self, *_: object) -> None:\n        return None\n\n    def _duplicate_of(",
            ),
            (
                "src/ottla/log/producer_state.py",
                "def _check_sequence(",
                "def _check_sequence(*_: object) -> None:\n    return None\n\n\ndef _real_check_sequence(",
            ),
        ],
        kinds="any moment: (hung|others)|network",
        faults=6,
    ),
    Mutation(
        name="aborted transactions are not named",
        changes=[
            (
                "src/ottla/log/aborted_transactions.py",
                "    def within(",
                "    def within(self, *_: object) -> list[object]:\n        return []\n\n    def _within(",
            )
        ],
        kinds="any moment: killed",
        faults=3,
    ),
    Mutation(
        name="nothing is synced",
        changes=[
            (
                "src/ottla/runtime/disk.py",
                "        sync_data(self._fd)\n",
                "        sync_data\n",
            )
        ],
        kinds="power cut: (any moment|at a write)",
        faults=4,
    ),
]


def verdict_on(mutation: Mutation, seed: int) -> RunRecord:
    """What both checkers make of a run with the bug."""
    with tempfile.TemporaryDirectory(prefix="ottla-verdict-") as temporary:
        tally = Path(temporary) / "tally.json"
        command = ["tests.robustness.faults", "--dir", f"{temporary}/run", "--add-to", str(tally)]
        done = run_planted(mutation, [*command, "--seed", str(seed), "--workers", "1", "--rest", "0.1"])
        runs = read_tally(tally).runs
        if not runs:
            raise RuntimeError(f"{done.stdout[-2000:]} {done.stderr[-2000:]}")
    return runs[0]


# ------------------------------------------------------------------------------------------------ anomalies in a history


def _answers(lines: list[Line], op: str, **facts: object) -> list[tuple[Line, Line]]:
    """Both lines of the operations that were answered."""
    invoked = {line["id"]: line for line in lines if line["event"] == INVOKE and line["op"] == op}
    return [
        (invoked[line["id"]], line)
        for line in lines
        if line["event"] == COMPLETE
        and line["id"] in invoked
        and all((line | invoked[line["id"]]).get(name) == value for name, value in facts.items())
    ]


def _last_read(lines: list[Line]) -> tuple[Line, Line]:
    """Of a partition that has many records; everything is read again at the end."""
    reads = [pair for pair in _answers(lines, READ, settled=True) if pair[0]["from"] == 0 and pair[1]["records"]]
    return max(reads, key=lambda pair: (pair[1]["end"], pair[1]["at"]))


def acknowledges_early(lines: list[Line]) -> None:
    """As acks=1 does: a record is acknowledged, and the next leader has another one at its offset."""
    invoke, _ = _last_read(lines)
    appends = [
        pair for pair in _answers(lines, APPEND, outcome=OK, topic=invoke["topic"], partition=invoke["partition"])
        if "offset" in pair[1]
    ]  # fmt: skip
    before, answer = appends[len(appends) // 2]
    value = before["value"].rsplit(" ", 1)[0] + " 999999"
    lines.insert(lines.index(answer), {**before, "id": value, "value": value})
    lines.insert(lines.index(answer), {**answer, "id": value})


def loses_a_tail(lines: list[Line]) -> None:
    _, answer = _last_read(lines)
    del answer["records"][-3:]
    answer["end"] -= 3


def doubles_a_record(lines: list[Line]) -> None:
    _, answer = _last_read(lines)
    answer["records"].append([answer["end"], answer["records"][-1][1]])
    answer["end"] += 1


def reorders_records(lines: list[Line]) -> None:
    """A record stands before a record that was acknowledged before the first one was sent."""
    invoke, _ = _last_read(lines)
    place = {"topic": invoke["topic"], "partition": invoke["partition"]}
    appends = [pair for pair in _answers(lines, APPEND, outcome=OK, **place) if "offset" in pair[1]]
    (first, first_answer) = appends[0]
    (later, later_answer) = next(pair for pair in appends if pair[0]["at"] > first_answer["at"])
    swapped = {first["value"]: later["value"], later["value"]: first["value"]}
    first_answer["offset"], later_answer["offset"] = later_answer["offset"], first_answer["offset"]
    for _, answer in _answers(lines, READ, **place):
        answer["records"] = [[offset, swapped.get(value, value)] for offset, value in answer["records"]]


def damages_a_record(lines: list[Line]) -> None:
    _, answer = _last_read(lines)
    answer["records"][len(answer["records"]) // 2][1] = "damaged b'?'"


def tears_a_transaction(lines: list[Line]) -> None:
    ((_, answer),) = _answers(lines, SNAPSHOT)
    del answer["records"][-1]


def shows_an_aborted_transaction(lines: list[Line]) -> None:
    _, answer = next(iter(_answers(lines, TRANSACT, outcome=OK)))
    answer["outcome"] = ABORTED


def shows_an_open_transaction(lines: list[Line]) -> None:
    invoke, answer = next(iter(_answers(lines, TRANSACT, outcome=OK)))
    lines.remove(answer)
    lines[:] = [line for line in lines if (line["event"], line.get("id")) != (ASK, invoke["id"])]


def loses_a_transaction(lines: list[Line]) -> None:
    ((_, answer),) = _answers(lines, SNAPSHOT)
    name = answer["records"][0][1]
    answer["records"] = [row for row in answer["records"] if row[1] != name]


def skips_a_record(lines: list[Line]) -> None:
    """In the polls of a member of the group."""
    reads = [answer for _, answer in _answers(lines, READ, settled=False) if len(answer["records"]) > 2]
    del reads[0]["records"][1]


def takes_a_commit_back(lines: list[Line]) -> None:
    """A member starts again before the offset that the group has committed."""
    invoke, answer = _answers(lines, COMMIT, outcome=OK)[-1]
    place = {name: invoke[name] for name in ("client", "topic", "partition")}
    at = lines.index(answer)
    again = {**place, "event": INVOKE, "op": FETCH_OFFSET, "id": "again", "at": answer["at"] + 1}
    lines.insert(at + 1, again)
    lines.insert(at + 2, {"event": COMPLETE, "id": "again", "at": answer["at"] + 2, "outcome": OK, "offset": 0})


ANOMALIES: list[Anomaly] = [
    acknowledges_early,
    loses_a_tail,
    doubles_a_record,
    reorders_records,
    damages_a_record,
    tears_a_transaction,
    shows_an_aborted_transaction,
    shows_an_open_transaction,
    loses_a_transaction,
    skips_a_record,
]
"""Both checkers find them."""
OF_GROUPS: list[Anomaly] = [takes_a_commit_back]
"""Porcupine has no model of a group."""


def planted(lines: list[Line], anomaly: Anomaly) -> list[Line]:
    changed = copy.deepcopy(lines)
    anomaly(changed)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression: only the planted bugs of such a name")
    options = parser.parse_args()
    missed = []
    for mutation in BUGS:
        if re.search(options.only, mutation.name):
            record = verdict_on(mutation, options.seed)
            print(f"{mutation.name}: {record.anomaly[:200]}", flush=True)
            print(f"    ours: {record.complaints[:2]}\n    porcupine: {record.disagreed[:3]}", flush=True)
            missed += [] if record.complaints and record.disagreed else [mutation.name]
    raise SystemExit(f"not found by both: {missed}" if missed else 0)


if __name__ == "__main__":
    main()
