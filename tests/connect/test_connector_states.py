"""The table of connector states, and the states that runs of a connector write."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.connectors import runs as connector_runs
from ottla.cli.connectors.runs import ConnectorRun
from ottla.cli.connectors.status import ConnectorStatus
from ottla.connect.states import FIRST_STATE, TRANSITIONS, ConnectorEvent, ConnectorState
from ottla.env.restarts import MAX_RESTARTS
from ottla.pipelines import supervisor

CALM: Any = SimpleNamespace(begun=0, goes_on=False, is_now=lambda: False)


class Attempts:
    """Plays `run_connector`: every attempt fails until the given number of failures, then moves a record."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, *_args: object, progress: Any, **_options: object) -> int:
        if self.failures:
            self.failures -= 1
            raise ValueError("it is broken")
        progress(1, 0)
        return 1


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[ConnectorState]:
    """The states that reach the status file, without repetitions."""
    states: list[ConnectorState] = [FIRST_STATE]

    def write_json(_path: str, content: dict[str, Any]) -> None:
        if "state" in content and (state := ConnectorState(content["state"])) is not states[-1]:
            states.append(state)

    monkeypatch.setattr(supervisor, "write_json", write_json)
    monkeypatch.setattr(connector_runs, "pause_s", lambda _failures: 0.0)
    monkeypatch.setattr("ottla.cli.connectors.status._EVERY_S", 0.0)
    return states


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, failures: int) -> ConnectorRun:
    monkeypatch.setattr(connector_runs, "run_connector", Attempts(failures))
    config = {"name": "orders", "connector.class": "lines"}
    return ConnectorRun(config, {}, ConnectorStatus(str(folder), config, []), lambda: False)


def test_every_state_and_every_event_stands_in_the_table() -> None:
    assert set(TRANSITIONS) == set(ConnectorState)
    assert {event for row in TRANSITIONS.values() for event in row} == set(ConnectorEvent)
    assert {state.value for state in ConnectorState} == set(supervisor.STATES)


@pytest.mark.parametrize(
    ("once", "failures", "expected"),
    [
        (True, 0, ["running", "finished"]),
        (True, 1, ["running", "failed"]),
        (False, 0, ["running", "stopped"]),
        (False, 2, ["running", "restarting", "running", "stopped"]),
        (False, MAX_RESTARTS + 1, ["running", "restarting", "failed"]),
    ],
)
def test_a_run_follows_the_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: list[ConnectorState],
    once: bool,
    failures: int,
    expected: list[str],
) -> None:
    connector = run(monkeypatch, tmp_path, failures)
    connector.once() if once else connector.until_stopped(CALM)
    assert [state.value for state in written[1:]] == expected
    for source, target in pairwise(written):
        assert target in TRANSITIONS[source].values()


def test_the_docs_show_the_table() -> None:
    from tools.state_docs import CONNECTORS, connector_section, page

    text = CONNECTORS.read_text("utf-8")
    assert text.count(connector_section()) == 1, "run make docs"
    assert page(CONNECTORS, text) == text
