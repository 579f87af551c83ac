"""Faults on real nodes with recorded histories: two checkers agree on them, and both find every planted anomaly."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pytest

from tests.robustness.dropping_disk import MountedDisk
from tests.robustness.dropping_tree import DroppingTree
from tests.robustness.edge_cluster import NoMounts
from tests.robustness.edge_faults import Score
from tests.robustness.edge_mutations import Mutation, misplaced
from tests.robustness.fault_kinds import KINDS
from tests.robustness.fault_tally import RunRecord, add_to, read_tally
from tests.robustness.faults import MAX_MINUTES, FaultRun, fault_seconds, kinds_in_turn, run
from tests.robustness.histories import APPEND, READ, UNKNOWN, History, recorded_operations
from tests.robustness.history_checks import complaints_of
from tests.robustness.history_mutations import ANOMALIES, BUGS, OF_GROUPS, Anomaly, Line, planted, verdict_on
from tests.support.kafka_jars import Unavailable
from tests.support.porcupine import OK, Opinion, opinions

RECORDED = Path(__file__).parent / "recorded/three_faults.jsonl.gz"
"""Of a run of three nodes with three faults (2026-11-19): the transactions, and the first partition of the plain topic.

`python -m tests.robustness.faults --seed 1 --faults 3 --only 'power cut: any|network: node|others hung'`
"""


EARLY = Path(__file__).parent / "recorded/early_acknowledgement.jsonl.gz"
"""Of nodes that answer acks=all too early (`history_mutations`, 2026-11-19): one partition of the plain topic."""


def recorded_lines(path: Path = RECORDED) -> list[Line]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def written(directory: Path, lines: list[Line]) -> Path:
    file = directory / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def porcupine_on(file: Path) -> list[Opinion]:
    try:
        return opinions(file)
    except Unavailable as reason:
        pytest.skip(str(reason))


# --------------------------------------------------------------------------------------------- the checkers of histories


def test_a_history_without_anomalies(tmp_path: Path) -> None:
    file = written(tmp_path, recorded_lines())
    recorded = recorded_operations(file)
    assert recorded.finished
    assert len(list(recorded.of(APPEND))) > 500
    assert complaints_of(file) == []


@pytest.mark.parametrize("anomaly", [*ANOMALIES, *OF_GROUPS], ids=lambda anomaly: anomaly.__name__)
def test_our_checkers_find_an_anomaly(tmp_path: Path, anomaly: Anomaly) -> None:
    assert complaints_of(written(tmp_path, planted(recorded_lines(), anomaly)))


@pytest.mark.interop
def test_porcupine_agrees(tmp_path: Path) -> None:
    judged = porcupine_on(written(tmp_path, recorded_lines()))
    assert {opinion.result for opinion in judged} == {OK}
    assert {opinion.part.rpartition("-")[2] for opinion in judged} == {"0", "output"}
    assert sum(opinion.operations for opinion in judged) > 1000


@pytest.mark.interop
@pytest.mark.parametrize("anomaly", ANOMALIES, ids=lambda anomaly: anomaly.__name__)
def test_porcupine_finds_an_anomaly(tmp_path: Path, anomaly: Anomaly) -> None:
    judged = porcupine_on(written(tmp_path, planted(recorded_lines(), anomaly)))
    assert [opinion.result for opinion in judged if opinion.result != OK] == ["Illegal"]


@pytest.mark.interop
def test_both_find_what_a_node_with_a_bug_has_done(tmp_path: Path) -> None:
    file = written(tmp_path, recorded_lines(EARLY))
    assert "was acknowledged at 5 and is lost" in complaints_of(file)[0]
    assert "Illegal" in {opinion.result for opinion in porcupine_on(file)}


TOPIC_ID = "00" * 16


def append(history: History, value: str, offset: int | None, outcome: str = "ok") -> None:
    operation = history.invoke(APPEND, name=value, topic=TOPIC_ID, partition=0, value=value)
    history.complete(operation, outcome, **({} if offset is None else {"offset": offset}))


def settled_read(history: History, values: list[str]) -> None:
    operation = history.invoke(READ, topic=TOPIC_ID, partition=0, **{"from": 0})
    history.complete(operation, records=list(enumerate(values)), settled=True, end=len(values))


@pytest.mark.interop
@pytest.mark.parametrize(
    ("values", "agreed"),
    [
        (["a", "b", "c"], True),  # the append of unknown outcome had no effect
        (["a", "b", "lost answer", "c"], False),  # c was acknowledged at offset 2
        (["a", "b", "c", "lost answer"], True),  # and here, late
        (["a", "b", "c", "lost answer", "lost answer"], False),
        (["a", "c"], False),
    ],
)
def test_an_outcome_that_nobody_knows(tmp_path: Path, values: list[str], *, agreed: bool) -> None:
    history = History(tmp_path / "history.jsonl")
    append(history, "lost answer", None, UNKNOWN)
    for offset, value in enumerate("abc"):
        append(history, value, offset)
    settled_read(history, values)
    history.finish()
    history.close()
    assert (complaints_of(history.file) == []) == agreed
    assert {opinion.result for opinion in porcupine_on(history.file)} == {OK if agreed else "Illegal"}


@pytest.mark.interop
def test_many_unknown_outcomes_do_not_make_the_search_long(tmp_path: Path) -> None:
    """A sender that is closed leaves them: each might have had an effect, and no read shows any."""
    history = History(tmp_path / "history.jsonl")
    for number in range(200):
        append(history, f"purged {number}", None, UNKNOWN)
    for offset, value in enumerate("abcdefgh"):
        append(history, value, offset)
    settled_read(history, list("abcdefg"))
    history.close()
    assert [opinion.result for opinion in porcupine_on(history.file)] == ["Illegal"]


# ------------------------------------------------------------------------------------------- a disk that drops unsynced


def test_a_power_cut_takes_what_was_not_synced() -> None:
    tree = DroppingTree()
    kept = tree.create(tree.root, "kept", 0o100640, (0, 0))
    kept.write(0, b"synced")
    kept.sync()
    tree.sync_directory(tree.root)
    kept.write(3, b"changed and longer")
    tree.create(tree.root, "unnamed", 0o100640, (0, 0)).write(0, b"x")
    tree.rename(tree.root, "kept", tree.root, "renamed")
    seed = next(seed for seed in range(100) if random.Random(seed).random() < 0.5)
    assert tree.cut(seed)[1] == 2
    assert list(tree.root.entries) == ["kept"]
    kept.truncate(2)
    kept.write(4, b"!")
    kept.sync()
    kept.truncate(0)
    kept.lose(None)
    assert bytes(kept.data) == b"sy\0\0!"


def test_names_go_in_the_order_of_their_changes() -> None:
    """A sync of one directory keeps the earlier changes of all directories; later ones go from the last."""
    for seed in range(20):
        tree = DroppingTree()
        folder = tree.create(tree.root, "folder", 0o040750, (0, 0))
        tree.create(folder, "first", 0o100640, (0, 0))
        tree.sync_directory(folder)
        for name in ("second", "third"):
            tree.create(folder, name, 0o100640, (0, 0))
        tree.cut(seed)
        assert list(folder.entries) in (["first"], ["first", "second"], ["first", "second", "third"])
        assert list(tree.root.entries) == ["folder"]


def test_pages_may_be_written_in_any_order() -> None:
    tree = DroppingTree()
    file = tree.create(tree.root, "file", 0o100640, (0, 0))
    file.write(0, b"a" * 40_000)
    file.lose(random.Random(5))
    pages = {bytes(file.data[at : at + 4096]) for at in range(0, len(file.data), 4096)}
    assert b"a" * 4096 in pages
    assert bytes(4096) in pages


@pytest.mark.interop
def test_a_mounted_disk(tmp_path: Path) -> None:
    try:
        disk = MountedDisk(tmp_path / "disk")
    except NoMounts as reason:
        pytest.skip(str(reason))
    try:
        folder = disk.mountpoint / "folder"
        folder.mkdir()
        file = os.open(folder / "log", os.O_RDWR | os.O_CREAT)
        os.pwrite(file, b"a" * 5000, 0)
        os.fdatasync(file)
        for path in (folder, disk.mountpoint):
            directory = os.open(path, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        os.pwrite(file, b"b" * 3000, 4000)
        assert (folder / "log").read_bytes() == b"a" * 4000 + b"b" * 3000
        os.close(file)
        seed = next(s for s in range(100) if (c := random.Random(s)).random() < 0.5 <= c.random())
        assert disk.cut(seed) == (3000, 0)
        assert (folder / "log").read_bytes() == b"a" * 5000
    finally:
        disk.close()


# --------------------------------------------------------------------------------------------------------------- the runs


def test_runs_add_up(tmp_path: Path) -> None:
    file, kind = tmp_path / "faults.json", "any moment: killed"
    for seed, gaps in ((1, [0.5, 2.5]), (2, [1.0])):
        score = Score(tried=len(gaps), hit=1, gaps=gaps)
        record = RunRecord(seed=seed, faults=len(gaps), seconds=10, load="1", porcupine={OK: 12})
        add_to(file, record, {kind: score})
    record = RunRecord(seed=3, faults=0, seconds=1, load="1", anomaly="lost", disagreed=["plain-0: Illegal"])
    tally = add_to(file, record, {}, kind)
    assert tally == read_tally(file)
    row = tally.kinds[kind]
    assert (row.tried, row.hit, row.over, row.anomalies, row.longest_gap_s) == (3, 2, 1, 1, 2.5)
    assert "3 faults in 3 runs, 2 anomalies; porcupine: {'Ok': 24}" in tally.report()


def test_every_kind_comes_before_one_comes_again() -> None:
    turns = kinds_in_turn(4, list(KINDS))
    assert sorted(next(turns) for _ in KINDS) == sorted(KINDS)
    for kind in ("all killed", "full disk", "network", "power cut", "flipped bits", "move", "reassignment", "deletion", "hung, then killed"):  # fmt: skip
        assert any(kind in name for name in KINDS), kind


def test_every_bug_has_its_place() -> None:
    assert [problem for bug in BUGS for problem in misplaced(bug)] == []


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(3600)
def test_twenty_minutes_of_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("OTTLA_SOAK_SEED", "22"))
    try:
        faults = FaultRun(tmp_path, seed, fault_seconds(MAX_MINUTES), list(KINDS))
        record = run(faults)
    except NoMounts as reason:
        pytest.skip(f"no mounts here: {reason}")
    assert record.anomalies == 0, record
    assert record.faults > len(KINDS)
    assert [kind for kind, score in faults.scores.items() if not score.hit] == []


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_both_checkers_find_a_bug_of_a_node(bug: Mutation) -> None:
    record = verdict_on(bug, seed=3)
    assert record.complaints
    assert record.disagreed
