"""kill -9 under load: a few rounds here, 200 in `make soak`."""

from __future__ import annotations

import re

import pytest

from tests.robustness.kill_rounds import run


def figures(summary: str) -> dict[str, int]:
    return {name: int(number) for number, name in re.findall(r"(\d+) (kills|records|found|segments|of plain)", summary)}


@pytest.mark.timeout(300)
def test_a_few_rounds(tmp_path):
    summary = run(tmp_path, rounds=6, seed=6)
    print(summary)
    assert figures(summary)["kills"] >= 6
    assert figures(summary)["segments"] > 20, "no segment was rolled: the load is too small to show anything"


@pytest.mark.timeout(300)
def test_encrypted_at_rest_with_new_master_keys_meanwhile(tmp_path):
    summary = run(tmp_path, rounds=2, seed=2, encrypted=True)
    assert figures(summary)["kills"] >= 2
    segments = [path for path in tmp_path.rglob("*.log") if path.name[:20].isdigit() and path.stat().st_size]
    assert segments
    assert all(path.read_bytes()[:8] == b"OTTLAENC" for path in segments)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_rounds(tmp_path):
    summary = run(tmp_path, rounds=200, seed=200, progress=True)
    print(summary)
    assert figures(summary)["kills"] >= 200
    assert figures(summary)["of plain"] > 0, "no answer was lost: nothing was sent twice"
