"""The transcripts in scenarios/, played on a coordinator with virtual time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator import transcript
from tests.coordinator.consumer_transcript import ConsumerTranscript
from tests.coordinator.streams_transcript import StreamsTranscript

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
CONSUMER_SCENARIOS = sorted((Path(__file__).parent / "consumer_scenarios").glob("*.txt"))
STREAMS_SCENARIOS = sorted((Path(__file__).parent / "streams_scenarios").glob("*.txt"))
TRANSCRIPTS = {"consumer_scenarios": ConsumerTranscript, "streams_scenarios": StreamsTranscript}


@pytest.mark.parametrize(
    "path",
    SCENARIOS + CONSUMER_SCENARIOS + STREAMS_SCENARIOS,
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_scenario(path: Path) -> None:
    played = transcript.run(path, TRANSCRIPTS.get(path.parent.name, transcript.Transcript)())
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) > 8
    assert len(CONSUMER_SCENARIOS) > 6
    assert len(STREAMS_SCENARIOS) > 6
