"""Log lines have a limit for each event; what is left out is counted, and the count is written."""

from __future__ import annotations

import io

import pytest

from ottla.env import logging


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [0.0]
    monkeypatch.setattr(logging.time, "monotonic", lambda: moment[0])
    return moment


def test_a_flood_of_one_event_is_cut_and_counted(now: list[float]) -> None:
    stream = io.StringIO()
    sink = logging._Sink(stream, 0, json=False)
    for number in range(10_000):
        sink.emit("warning", "test", "connection.refused", {"peer": number})
    assert stream.getvalue().count("connection.refused") == logging.BURST
    sink.emit("info", "test", "node.started", {})
    assert "node.started" in stream.getvalue()  # other events are not held up
    now[0] = 60.0
    sink.emit("info", "test", "node.stopped", {})
    assert f"log.suppressed events=connection.refused lines={10_000 - logging.BURST}" in stream.getvalue()
    sink.emit("warning", "test", "connection.refused", {"peer": "again"})
    assert "peer=again" in stream.getvalue()


@pytest.mark.parametrize("json", [True, False])
@pytest.mark.usefixtures("now")
def test_a_long_fact_is_cut(json: bool) -> None:
    stream = io.StringIO()
    logging._Sink(stream, 0, json=json).emit("warning", "test", "x.y", {"name": "n" * 30_000})
    assert len(stream.getvalue()) < logging.MAX_TEXT + 300
    assert "30000 characters" in stream.getvalue()
