"""A coordinator's topic is created by who asks for it first: where that one is gone before it began, nothing is left."""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers.find_coordinator import GROUP, TRANSACTION, handle
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.transactions.settings import TransactionCoordinatorSettings
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_a_request_that_is_dropped_before_it_ran_leaves_no_coroutine(key_type: int) -> None:
    shards = SimpleNamespace(creating_topic=False)
    broker = SimpleNamespace(
        image=SimpleNamespace(topics_by_name={}),
        groups=SimpleNamespace(shards=shards, settings=GroupCoordinatorSettings()),
        transactions=SimpleNamespace(shards=shards, settings=TransactionCoordinatorSettings()),
    )
    context = cast("Any", SimpleNamespace(version=6, broker=broker, listener="PLAINTEXT"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        answer = cast("Any", handle(context, FindCoordinatorRequest("", key_type, ["g"])))
        answer.close()  # as the end of a loop closes a task that never ran
        del answer
        gc.collect()
    assert not [str(warning.message) for warning in seen if "never awaited" in str(warning.message)]
    assert not shards.creating_topic
