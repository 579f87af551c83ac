"""Fetches that wait: what they look at, what they hold, and where they end; with a real broker."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.broker.handlers.fetch import Fetch, ParkedFetch
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.replication import put_off
from ottla.testing import Broker
from tests.robustness.wire import call, create_topic, encoded, fetch, produce
from tests.support.frames import RawConnection

PARTITIONS = 40
FOREVER_MS = 2**31 - 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    properties = {"auto.create.topics.enable": "false", "fetch.max.bytes": "1500"}
    with Broker(properties=properties) as running:
        with connect(running) as connection:
            assert create_topic(connection, "t", PARTITIONS) == 0
        yield running


def connect(broker: Broker) -> RawConnection:
    host, port = broker.bootstrap_servers.split(":")
    return RawConnection(host, int(port))


def in_loop(broker: Broker, work: Callable[[], Any]) -> Any:
    """The result of `work` in the loop's thread, after everything that it has to do at present."""
    result: Future[Any] = Future()
    loop = broker._loop
    assert loop is not None

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001 - for the test
            result.set_exception(error)

    loop.call_soon_threadsafe(lambda: loop.call_soon(lambda: loop.call_soon(run)))
    return result.result(30)


def parked(broker: Broker) -> list[Any]:
    node = broker.node.broker
    assert node is not None
    return in_loop(broker, lambda: [w for w in node.replicas.get("t", 0)._waiters if isinstance(w, ParkedFetch)])


def until(broker: Broker, condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110 - the broker's loop decides
            await asyncio.sleep(0.001)

    loop = broker._loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(asyncio.wait_for(wait(), 30), loop).result(40)


def request(*, times: int = 1, min_bytes: int = 1000) -> FetchRequest:
    partitions = [
        FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 30)
        for _ in range(times)
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=FOREVER_MS, min_bytes=min_bytes, max_bytes=1 << 30, session_epoch=-1,
        topics=[FetchTopic("t", partitions=partitions)],
    )  # fmt: skip


def test_it_looks_at_what_has_moved_and_holds_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    read_partition = Fetch._read_partition

    def counted(self: Fetch, key: Any, wanted: Any, left: int) -> Any:
        looked.append(key.partition)
        return read_partition(self, key, wanted, left)

    with connect(broker) as waiting, connect(broker) as writer:
        waiting.send_raw(encoded(request(), 11))
        until(broker, lambda: bool(node_waiters(broker)))
        monkeypatch.setattr(Fetch, "_read_partition", counted)
        assert produce(writer, "t", 7, b"x" * 100) == (0, 0)
        (one,) = parked(broker)
        assert looked == [7]
        assert (one._fetch.answers, one._fetch._request.topics) == ([], [])
        assert produce(writer, "t", 8, b"x" * 1000) == (0, 0)  # that is enough
        answer = waiting.read_frame()
        assert answer is not None
        assert looked[:2] == [7, 8]
        assert sorted(looked[2:]) == list(range(PARTITIONS))
        assert len(answer) > 1100
    assert parked(broker) == []


def node_waiters(broker: Broker) -> dict[object, Any]:
    node = broker.node.broker
    assert node is not None
    return node.replicas.get("t", 0)._waiters


def test_fetch_max_bytes_is_the_most_and_is_enough(broker: Broker) -> None:
    with connect(broker) as connection:
        for index in range(20, 26):
            assert produce(connection, "t", index, b"y" * 1000)[0] == 0
        response = call(connection, request(min_bytes=1 << 30), 11)  # answered at once
        sizes = [len(data.records or b"") for topic in response.responses for data in topic.partitions]
        assert 1000 < sum(sizes) <= 1500 + 1100


def test_a_peer_that_goes_while_its_large_fetch_is_handled_leaves_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler comes to its end, and what it parks ends with it."""
    node = broker.node.broker
    assert node is not None
    made: list[ParkedFetch] = []
    init = ParkedFetch.__init__

    def noted(self: ParkedFetch, fetch: Fetch, context: Any, max_wait_ms: int) -> None:
        made.append(self)
        context.connection.peer.close()  # as when its socket is reset meanwhile
        init(self, fetch, context, max_wait_ms)

    monkeypatch.setattr(ParkedFetch, "__init__", noted)
    peer = connect(broker)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    in_loop(broker, lambda: [log.delete_records_before(-1) for log in node.replicas.by_name["t"].values()])
    with connect(broker) as other:
        starts = {index: fetch(other, "t", index)[0] for index in (7, 20)}
    assert starts == {7: 1, 20: 1}  # out of range: every log begins at its end
    large = request(times=300, min_bytes=1499)
    for each in large.topics[0].partitions:
        each.fetch_offset = node.replicas.get("t", each.partition).log.log_end_offset
    peer.send_raw(encoded(large, 11))
    until(broker, lambda: bool(made) and made[0].deferred.done)
    assert node_waiters(broker) == {}
    peer.close()


def test_many_new_replicas_are_made_over_many_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_off, "AT_ONCE", 4)
    node = broker.node.broker
    assert node is not None
    turns: list[int] = []
    next_turn = put_off.PutOff.next

    def counted(self: put_off.PutOff) -> None:
        before = len(node.replicas.by_name.get("many", {}))
        next_turn(self)
        turns.append(len(node.replicas.by_name.get("many", {})) - before)

    monkeypatch.setattr(put_off.PutOff, "next", counted)
    with connect(broker) as connection:
        assert create_topic(connection, "many", 30) == 0
        until(broker, lambda: len(node.replicas.by_name["many"]) == 30)
        assert sum(turns) == 30 - put_off.IN_A_TURN
        assert max(turns) <= put_off.IN_A_TURN
        assert produce(connection, "many", 29, b"x") == (0, 0)
