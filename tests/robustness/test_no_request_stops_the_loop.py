"""The largest request of every API, alone and beside others: no turn of the node's loop does more than a bounded work.

Work is counted, not timed: each call of a Python function in the thread of the loop, between two turns. A loop over a
peer's elements calls something for each of them, so that a handler that takes all of them at once shows here, on any machine.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.broker.apis import BROKER_APIS, CHANGE
from ottla.model.ids import Uuid, uuid_to_str
from ottla.protocol.api import encode_request
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.index import APIS
from ottla.server.node import Node
from ottla.testing import Broker
from tests.robustness.largest_changes import error_codes, largest_changes
from tests.robustness.largest_requests import TOPIC, LargeRequest, largest_requests
from tests.robustness.wire import call, create_topic
from tests.support.frames import RawConnection

ELEMENTS = 3_000
MOST_CALLS = 5_500
"""In one turn. A handler that takes all elements at once makes more: two calls for each element are 6,000."""
MOST_CHANGE_CALLS = 12 * ELEMENTS
"""Of a change, which is decided in one step: a bounded number for each element, of which there are no more than
`ottla.request.max.changes`."""
MOST_CALLS_OF_A_STEP = 45 * ELEMENTS
"""Of a change that succeeds. The longest step is one turn: the publication of a change, or the event of a coordinator."""
NOT_NEEDED = 84
"""ELECTION_NOT_NEEDED"""
NO_TOPIC = Uuid(b"\1" * 16)
LONG_WAITS = {1, 11, 14, 78}
"""Fetch, JoinGroup, SyncGroup, ShareFetch may wait for something to happen; what they do until then is counted."""


class CountedBroker(Broker):
    """A broker whose loop counts the calls of each turn."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.most = 0
        self.calls = 0

    def _run(self, started: Future[Node]) -> None:
        def count(_frame: object, event: str, _argument: object) -> None:
            if event == "call":
                self.calls += 1

        with asyncio.Runner(loop_factory=lambda: CountedLoop(self)) as runner:
            sys.setprofile(count)
            runner.run(self._serve(started))


class CountedLoop(asyncio.SelectorEventLoop):
    def __init__(self, broker: CountedBroker) -> None:
        super().__init__()
        self._broker = broker

    def _run_once(self) -> None:  # asyncio's own, called for each turn
        broker = self._broker
        broker.calls = 0
        super()._run_once()  # type: ignore[misc]  # not in the stubs
        broker.most = max(broker.most, broker.calls)


@pytest.fixture(scope="module")
def broker() -> Iterator[CountedBroker]:
    properties = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "3",
    }
    with CountedBroker(properties=properties) as running:
        with connect(running) as connection:
            create_topic(connection, TOPIC, 8)
            for kind, key in enumerate(("group", "group", f"group:{uuid_to_str(topic_id(running))}:0")):
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                connection.send_raw(b"".join(encode_request(request, 6, 1, "warm")))
                assert connection.read_frame()
        yield running


def connect(broker: CountedBroker, timeout: float = 120) -> RawConnection:
    host, port = broker.bootstrap_servers.split(":")
    return RawConnection(host, int(port), timeout=timeout)


def topic_id(broker: CountedBroker) -> Uuid:
    node = broker.node.broker
    assert node is not None
    topic = node.image.topics_by_name.get(TOPIC)
    return NO_TOPIC if topic is None else topic.id


@contextmanager
def counted(broker: CountedBroker) -> Iterator[None]:
    broker.most = 0
    yield
    settled = threading.Event()
    loop = broker._loop
    assert loop is not None
    loop.call_soon_threadsafe(settled.set)  # the turn that answered is over
    assert settled.wait(120)


def send(broker: CountedBroker, request: LargeRequest) -> int:
    """The most calls of one turn while it is answered, or refused."""
    with counted(broker), connect(broker, timeout=2 if request.api_key in LONG_WAITS else 120) as connection:
        connection.send_raw(request.frame)
        try:
            connection.read_frame()
        except TimeoutError:
            assert request.api_key in LONG_WAITS, f"{request.label} is not answered"
        except ConnectionError:
            pass
    return broker.most


APIS_WITH_ARRAYS = [key for key in sorted(BROKER_APIS) if key not in (17, 18, 36)]


@pytest.mark.parametrize("api_key", APIS_WITH_ARRAYS, ids=lambda key: APIS[key].name)
def test_largest_request_of_an_api(broker: CountedBroker, api_key: int) -> None:

    allowed = MOST_CHANGE_CALLS if BROKER_APIS[api_key].work & CHANGE else MOST_CALLS
    warm = next(largest_requests(api_key, 1, topic_id(broker)), None)
    if warm is not None:
        send(broker, warm)  # its handler is imported
    with connect(broker) as connection:
        create_topic(connection, TOPIC, 8)  # a request may have deleted it
    for request in largest_requests(api_key, ELEMENTS, topic_id(broker)):
        calls = send(broker, request)
        assert calls <= allowed, f"{request.label}: {calls} calls in one turn of the loop"


def test_a_hundred_large_requests_at_once_take_turns(broker: CountedBroker) -> None:
    request = next(r for r in largest_requests(15, ELEMENTS, topic_id(broker)) if r.label.endswith("different"))
    with counted(broker):
        connections = [connect(broker) for _ in range(20)]
        for connection in connections:
            connection.send_raw(request.frame)
        answers = {len(connection.read_frame() or b"") for connection in connections}
        for connection in connections:
            connection.close()
    assert len(answers) == 1
    assert answers != {0}
    assert broker.most <= MOST_CALLS


def test_a_small_request_about_a_large_session(broker: CountedBroker) -> None:
    """An incremental fetch of no partitions reads all those of its session."""
    partitions = [FetchPartition(index) for index in range(2_000)]
    topics = [FetchTopic("unknown", partitions=partitions)]
    first = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)
    with connect(broker) as connection:
        session_id = call(connection, first, 11).session_id
        assert session_id
        with counted(broker):
            again = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=1)
            assert len(call(connection, again, 11).responses[0].partitions) == 2_000
    assert broker.most <= MOST_CALLS


def test_a_request_with_too_many_elements_is_refused(broker: CountedBroker) -> None:
    """CreatePartitions with more than ottla.request.max.changes; DescribeGroups with a million and one."""
    changes = next(largest_requests(37, 11_000, topic_id(broker)))
    million = struct.pack(">hhih", 15, 4, 1, -1) + struct.pack(">i", 1_000_100) + b"\0\0" * 1_000_100 + b"\0"
    for frame in (changes.frame, struct.pack(">i", len(million)) + million):
        with connect(broker) as connection:
            connection.send_raw(frame)
            assert connection.read_frame() is None


def test_changes_that_succeed() -> None:
    """The longest turn grows with the elements of a request, not with their square: a bounded number of calls for each."""
    properties = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "50",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    too_long: list[str] = []
    with CountedBroker(properties=properties) as broker, connect(broker) as connection:
        for count in (4, ELEMENTS):  # the first round imports the handlers
            call(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4)
            for change in largest_changes(count, [1], with_acls=True):
                with counted(broker):
                    response = call(connection, change.request, change.version)
                assert error_codes(response) <= {0, NOT_NEEDED}, change.label
                if count == ELEMENTS and broker.most > MOST_CALLS_OF_A_STEP:
                    too_long.append(f"{change.label}: {broker.most} calls in one turn of the loop")
    assert not too_long
