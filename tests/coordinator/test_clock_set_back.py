"""The wall clock of a coordinator is set back by ten minutes: its groups go on at once (simulator, seed 240)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.coordinator.test_growth_under_refusal import Member, assigned, consumer, share, streams

SET_BACK_MS = 600_000


@pytest.mark.parametrize("make", [consumer, lambda: share("t"), streams], ids=["consumer", "share", "streams"])
def test_new_partitions_are_assigned(make: Callable[[], Member]) -> None:
    member = make()
    world = member.world
    interval = {f"{kind}_assignment_interval_ms": "1000" for kind in ("consumer", "share", "streams")}
    world.configure_group("g", **interval)
    world.set_topic("t", 1)
    member.settle()
    assert assigned(member) == {0}
    world.time.skew_ms -= SET_BACK_MS
    world.set_topic("t", 3)
    member.settle()
    assert assigned(member) == {0, 1, 2}


def test_an_expression_matches_new_topics() -> None:
    member = consumer(regex=True)
    world = member.world
    world.set_topic("t", 1)
    member.settle()
    world.time.skew_ms -= SET_BACK_MS
    world.set_topic("tt", 2)
    member.settle()
    assert assigned(member) == {0, 1}


def test_the_state_of_a_share_partition_is_asked_for_again() -> None:
    """The first request had no answer."""
    member = share("t")
    world = member.world
    persister = world.persister
    unanswered: list[object] = []
    initialize, persister.initialize = persister.initialize, lambda *request: unanswered.append(request)
    world.set_topic("t", 1)
    assert member.beat()
    assert unanswered
    persister.initialize = initialize
    world.time.skew_ms -= SET_BACK_MS
    member.settle()
    assert assigned(member) == {0}
