"""A request that fails while it waits ends its own connection, and nothing else waits or pays for the failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.deferred import Deferred, Unfinished
from ottla.broker.handlers import fetch as fetch_handler
from ottla.broker.handlers.fetch import Fetch, ParkedFetch
from ottla.model.pace import Bounded, TooMuchWorkError, at_pace, paced
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.testing import Broker
from tests.robustness.wire import call, create_topic, encoded, produce
from tests.support.frames import RawConnection

PARTITIONS = 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(properties={"auto.create.topics.enable": "false"}) as running:
        with connect(running) as connection:
            assert create_topic(connection, "t", PARTITIONS) == 0
        yield running


def connect(broker: Broker) -> RawConnection:
    host, port = broker.bootstrap_servers.split(":")
    return RawConnection(host, int(port))


def waiters(broker: Broker) -> list[object]:
    node = broker.node.broker
    assert node is not None
    return [
        waiter
        for partition in node.replicas.by_name["t"].values()
        for waiter in list(partition._waiters)
        if isinstance(waiter, ParkedFetch)
    ]


def waiting_fetch(max_wait_ms: int = 2**31 - 1, min_bytes: int = 1, times: int = 1) -> FetchRequest:
    partitions = [
        FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20)
        for _ in range(times)
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic("t", partitions=partitions)],
    )  # fmt: skip


def parked_fetch(broker: Broker) -> RawConnection:
    peer = connect(broker)
    peer.send_raw(encoded(waiting_fetch(), 11))
    with connect(broker) as other:
        while not waiters(broker):  # each answer is a turn of the broker's loop
            call(other, waiting_fetch(max_wait_ms=0), 11)
    return peer


def test_a_fetch_that_fails_when_it_looks_again_closes_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parked_fetch(broker) as peer, connect(broker) as writer:

        def broken(self: Fetch, positions: Any) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(Fetch, "look_again", broken)
        assert produce(writer, "t", 3, b"x") == (0, 0)
        assert peer.read_frame() is None  # closed
        assert waiters(broker) == []


def test_a_fetch_whose_answer_fails_closes_its_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with parked_fetch(broker) as peer, connect(broker) as writer:

        def broken(self: Fetch) -> Any:
            raise RuntimeError("planted")

        monkeypatch.setattr(Fetch, "answer", broken)
        assert produce(writer, "t", 3, b"x") == (0, 0)
        assert peer.read_frame() is None
        assert waiters(broker) == []


def test_a_fetch_that_cannot_park_leaves_no_watcher(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of elements may be reached between two partitions."""
    seen: list[object] = []

    def limited(items: Any, cost: int = 1) -> Any:
        for number, item in enumerate(paced(items, cost)):
            if number == PARTITIONS // 2 and cost == 1:
                raise TooMuchWorkError("planted")
            seen.append(item)
            yield item

    monkeypatch.setattr(fetch_handler, "paced", limited)
    with connect(broker) as peer:
        peer.send_raw(encoded(waiting_fetch(), 11))
        assert peer.read_frame() is None
    assert seen
    assert waiters(broker) == []


def test_the_answer_to_a_different_request_is_not_charged_to_the_work_under_way() -> None:
    results: list[int] = []

    def answer(_: object) -> None:
        results.append(sum(1 for _ in paced(range(1000))))

    deferred: Deferred[int] = Deferred()
    deferred.then(answer)
    with at_pace(Bounded(10)):
        deferred.resolve(1)
        with pytest.raises(TooMuchWorkError):  # the pace of the work itself still counts
            list(paced(range(1000)))
    assert results == [1000]


def test_a_deferred_answer_may_be_a_failure() -> None:
    answers: list[object] = []
    deferred: Deferred[int] = Deferred()
    deferred.then(answers.append)
    deferred.fail(RuntimeError("planted"))
    (failure,) = answers
    assert isinstance(failure, Unfinished)
    with pytest.raises(RuntimeError, match="planted"):
        failure.finish()
