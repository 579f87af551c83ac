"""The loop looks for the next request while small ones come one upon the other, and at no other time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from ottla.runtime import busy_poll
from ottla.runtime.busy_poll import BusyPoll

WINDOW_US = 200


class Clock:
    def __init__(self) -> None:
        self.us = 1_000_000.0

    def __call__(self) -> float:
        return self.us / 1e6


class Loop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None], *_: object, **__: object) -> None:  # type: ignore[override]  # the two that it needs
        self.soon.append(callback)

    @property
    def would_sleep(self) -> bool:
        return not self.soon

    def turn(self) -> None:
        called, self.soon = self.soon, []
        for each in called:
            each()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(busy_poll, "monotonic", clock)
    return clock


def _requests(watched: BusyPoll, clock: Clock, gaps_us: list[int]) -> None:
    for gap in gaps_us:
        clock.us += gap
        watched.on_small_request()


def test_requests_that_come_one_upon_the_other(clock: Clock) -> None:
    loop = Loop()
    watched = BusyPoll(loop, WINDOW_US)
    _requests(watched, clock, [5_000, 90, 90, 90])
    assert loop.would_sleep  # three of eight are chance
    _requests(watched, clock, [90])
    for _ in range(19):
        clock.us += 10
        loop.turn()
        assert not loop.would_sleep
    clock.us += 20
    loop.turn()
    assert loop.would_sleep
    _requests(watched, clock, [50])  # the next one after a look in vain
    assert len(loop.soon) == 1
    _requests(watched, clock, [50, 50])
    assert len(loop.soon) == 1  # one look at a time


def test_requests_at_leisure_are_not_looked_for(clock: Clock) -> None:
    loop = Loop()
    watched = BusyPoll(loop, WINDOW_US)
    _requests(watched, clock, [90, 1_000, 1_000] * 50 + [201] * 1_000)
    assert loop.would_sleep


def test_a_window_of_nothing_looks_for_nothing(clock: Clock) -> None:
    loop = Loop()
    _requests(BusyPoll(loop, 0), clock, [0, 1] * 50)
    assert loop.would_sleep
