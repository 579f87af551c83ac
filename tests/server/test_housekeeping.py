"""A duty that fails, by whatever error, is tried again at its next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby

import pytest

from ottla.log.cleaner import Cleaner
from ottla.log.log_store import LogStore
from ottla.server.housekeeping import LOGS_IN_A_TURN, log_by_log
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


def test_duties_over_all_logs_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention and the expiry of producers take a few logs in a turn of the loop."""
    turns: list[str] = []

    def duty(name: str) -> Iterator[int]:
        for number in range(3 * LOGS_IN_A_TURN):
            turns.append(name)
            yield number

    async def others() -> None:
        while turns.count("retention") < 3 * LOGS_IN_A_TURN:
            turns.append("others")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(log_by_log(duty("retention")), others())

    asyncio.run(both())
    runs = [len(list(run)) for name, run in groupby(turns) if name == "retention"]
    assert runs == [LOGS_IN_A_TURN] * 3
