"""Three nodes, replication factor 3, min ISR 2, under idempotent load: faults lose, double and reorder nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.cluster_faults import ALL, HANG, HANG_THEN_KILL, KILL, run_rounds
from tests.robustness.cluster_process import ClusterProcess


@pytest.mark.timeout(300)
def test_a_few_faults(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        print(run_rounds(cluster, [KILL, HANG, ALL, HANG_THEN_KILL], seed=1))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_faults(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        gaps = run_rounds(cluster, [KILL, HANG, HANG_THEN_KILL, ALL] * 50, seed=2)
    print({kind: round(gap, 2) for kind, gap in gaps.items()})
    assert gaps[KILL] <= 2.0
    assert gaps[HANG] <= 10.0
    assert gaps[HANG_THEN_KILL] <= 10.0
    assert gaps[ALL] <= 15.0
