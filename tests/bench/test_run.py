"""The order of a run and what it does with failures, with cases that only write down that they were called."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.bed import Bed
from bench.loads import Case
from bench.measure import RATE, SUBJECT, YARDSTICK
from bench.plan import QUICK, Sizes
from bench.servers import ApacheKafka, Ottla

from bench import run as runner

ROOT = Path(__file__).parents[2]


def bed(tmp_path: Path, rounds: int) -> Bed:
    from dataclasses import replace

    return Bed({SUBJECT: Ottla, YARDSTICK: ApacheKafka}, replace(QUICK, rounds=rounds), tmp_path)


def test_servers_take_turns_at_going_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def cases(_: Sizes) -> list[Case]:
        def case(label: str) -> Case:
            def measure(_: Bed, role: str) -> dict:
                seen.append((label, role))
                return {RATE: 1.0}

            return Case(load="produce", label=label, quantities=(RATE,), run=measure)

        return [case("a"), case("b")]

    monkeypatch.setitem(runner.LOADS, "produce", cases)
    table = runner.run(bed(tmp_path, 2), ["produce"])
    one, two = [SUBJECT, YARDSTICK], [YARDSTICK, SUBJECT]
    assert seen == [("a", r) for r in one] + [("b", r) for r in one] + [("a", r) for r in two] + [("b", r) for r in two]
    assert [len(row.samples[role]) for row in table.rows for role in one] == [2, 2, 2, 2]


def test_a_failed_case_is_reported_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def measure(_: Bed, role: str) -> dict:
        tried.append(role)
        if role == SUBJECT:
            raise RuntimeError("broken\nwith details of this machine")
        return {RATE: 1.0}

    case = Case(load="produce", label="a", quantities=(RATE,), run=measure)
    monkeypatch.setitem(runner.LOADS, "produce", lambda _: [case])
    (row,) = runner.run(bed(tmp_path, 3), ["produce"]).rows
    assert tried.count(SUBJECT) == 1
    assert row.errors[SUBJECT] == ["RuntimeError: broken"]
    assert row.samples[YARDSTICK] == [1.0, 1.0, 1.0]


def test_every_combination_of_the_issue_is_a_row() -> None:
    labels = {case.label for case in runner.LOADS["produce"](QUICK)}
    for size in ("100 B", "1 KB"):
        for partitions in ("1 partition", "6 partitions"):
            for codec in ("none", "lz4"):
                for acks in ("1", "all"):
                    assert f"{size}, {partitions}, {codec}, acks={acks}" in labels
    keys = [(case.load, case.label) for load in runner.LOADS.values() for case in load(QUICK)]
    assert len(keys) == len(set(keys))


def test_full_sizes_reach_what_the_issue_asks() -> None:
    full = Sizes()
    assert full.rounds >= 3
    assert (full.partitions[0], full.partitions[-1]) == (10, 10_000)
    assert (full.connections[0], full.connections[-1]) == (10, 5000)
    assert full.killed_partitions == 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--rows", "nonsense"], "no such rows: nonsense"), (["--partitions", "15"], "multiples of ten")],
)
def test_bad_arguments_are_one_clear_line(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
