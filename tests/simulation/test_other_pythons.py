"""A seed has the same trace in every Python that Ottla supports."""

from __future__ import annotations

import os
import sys

import pytest

from tests.simulation.digests import digests

INTERPRETERS = "OTTLA_PYTHONS"
SEEDS = (1001, 1003, 1004, 1006, 1010)


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_a_seed_has_the_same_trace_in_other_pythons() -> None:
    interpreters = [path for path in os.environ.get(INTERPRETERS, "").split(os.pathsep) if path]
    if not interpreters:
        pytest.skip(
            f"{INTERPRETERS} names no other interpreters with the core dependencies (separated by {os.pathsep})"
        )
    here = digests(sys.executable, *SEEDS, hash_seed=1)
    assert [line.split()[0] for line in here] == [str(seed) for seed in SEEDS]
    for interpreter in interpreters:
        assert digests(interpreter, *SEEDS, hash_seed=2) == here, interpreter
