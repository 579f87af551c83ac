"""A duty that fails, by whatever error, is tried again at its next turn."""

from __future__ import annotations

import pytest

from ottla.log.cleaner import Cleaner
from ottla.log.log_store import LogStore
from ottla.testing import Broker
from tests.robustness.cluster_process import wait_for


@pytest.mark.parametrize("error", [OSError("the disk"), ValueError("a bug")])
def test_duties_go_on_after_an_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    turns = {"retention": 0, "cleaning": 0}

    def fail(name: str) -> None:
        turns[name] += 1
        raise error

    monkeypatch.setattr(LogStore, "delete_old_segments", lambda _store, _now_ms: fail("retention"))
    monkeypatch.setattr(Cleaner, "clean_next", lambda _cleaner: fail("cleaning"))
    properties = {
        "log.retention.check.interval.ms": "20",
        "log.cleaner.backoff.ms": "20",
        "log.initial.task.delay.ms": "0",
    }
    with Broker(properties=properties):
        wait_for(lambda: min(turns.values()) >= 3, 30, f"each duty has three turns: {turns}")
