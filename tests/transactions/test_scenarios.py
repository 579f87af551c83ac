"""The transcripts in scenarios/, played on a transaction coordinator with virtual time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transactions import transcript

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    played = transcript.run(path)
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8
