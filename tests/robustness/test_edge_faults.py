"""Moves, re-created topics, reassignments, full disks and pending transactions under faults: nothing lost or revived."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.robustness.edge_cluster import NoMounts
from tests.robustness.edge_faults import Score, never_hit, plan, report, run, too_long
from tests.robustness.edge_kinds import KINDS
from tests.robustness.edge_mutations import MUTATIONS, Mutation, is_found, misplaced

A_FEW = [
    "move: killed before the source's rename",
    "deletion: offsets pending",
    "reassignment: new replica killed",
    "move: truncated under it",
]


def scores_of(directory: Path, planned: list[str], seed: int, workers: int) -> dict[str, Score]:
    try:
        scores = run(directory, planned, seed, workers=workers)
    except NoMounts as reason:
        pytest.skip(f"no mounts here: {reason}")
    print(report(scores))
    return scores


@pytest.mark.timeout(400)
def test_a_few_edge_faults(tmp_path: Path) -> None:
    assert set(A_FEW) <= set(KINDS)
    assert never_hit(scores_of(tmp_path, A_FEW, seed=7, workers=1)) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_hundred_edge_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("OTTLA_SOAK_SEED", "17"))
    scores = scores_of(tmp_path, plan(100, seed, KINDS), seed, workers=2)
    assert never_hit(scores) == []
    assert too_long(scores) == []


def test_every_bug_that_may_be_planted_has_its_place() -> None:
    assert [problem for mutation in MUTATIONS for problem in misplaced(mutation)] == []
    assert all(any(re.search(mutation.kinds, kind) for kind in KINDS) for mutation in MUTATIONS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_faults_find_what_they_were_written_for(mutation: Mutation) -> None:
    assert is_found(mutation, seed=3)
