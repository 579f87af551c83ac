"""Exactly once under kill -9 of broker and clients: a few rounds here, 100 in `make soak`."""

from __future__ import annotations

import re

import pytest

from tests.robustness.transaction_rounds import run


def figures(summary: str) -> dict[str, int]:
    return {
        name: int(number) for number, name in re.findall(r"(\d+) (broker|worker|inputs|records|transactions)", summary)
    }


@pytest.mark.timeout(300)
def test_a_few_rounds(tmp_path):
    summary = run(tmp_path, rounds=5, seed=3)
    print(summary)
    assert figures(summary)["broker"] >= 2
    assert figures(summary)["worker"] >= 2
    assert figures(summary)["records"] > 0, "nothing was aborted: the rounds show too little"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_rounds(tmp_path):
    summary = run(tmp_path, rounds=100, seed=100, progress=True)
    print(summary)
    assert figures(summary)["broker"] >= 40
    assert figures(summary)["worker"] >= 40
