"""What a node does over and over goes on after a turn that failed, and whoever waits for an answer gets one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.server.cluster.peers import BrokerPeers
from ottla.server.cluster.replication import Replication


class Client:
    host, port = "h", 1

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        raise ValueError("an answer that nobody thought of")

    def close(self) -> None:
        pass


class Fetcher:
    source_id = 2

    def __init__(self) -> None:
        self.failures = 0
        self.enough = asyncio.Event()

    def request(self) -> Any:
        return SimpleNamespace()

    def on_failure(self) -> None:
        self.failures += 1
        if self.failures == 3:
            self.enough.set()


def replication(controller: Any, shrink: Any = None) -> tuple[Any, Any]:
    replicas: Any = SimpleNamespace(
        context=SimpleNamespace(node_id=1, lag_time_max_ms=1, broker=lambda _id: None),
        fetchers=SimpleNamespace(by_source={}, on_changed=None),
        directories=None,
        shrink_isrs=shrink,
    )
    config: Any = SimpleNamespace(replica_lag_time_max_ms=1, replica_socket_timeout_ms=1, inter_broker_listener="P")
    return Replication(lambda: config, replicas, SimpleNamespace(), controller), replicas  # type: ignore[arg-type]


def test_following_goes_on() -> None:
    async def follow() -> None:
        carried, replicas = replication(None)
        fetcher, client = Fetcher(), Client()
        replicas.fetchers.by_source[2] = fetcher
        carried._client = lambda _source: client
        carried._on_changed(2)
        async with asyncio.timeout(30):
            await fetcher.enough.wait()
        await carried.stop()

    asyncio.run(follow())


def test_isrs_are_looked_at_again() -> None:
    async def shrink() -> None:
        turns, enough = [0], asyncio.Event()

        def fail() -> None:
            turns[0] += 1
            if turns[0] == 3:
                enough.set()
            raise ValueError("a partition that nobody thought of")

        carried, _ = replication(None, fail)
        carried.start()
        async with asyncio.timeout(30):
            await enough.wait()
        await carried.stop()

    asyncio.run(shrink())


def test_whoever_asks_a_controller_or_a_broker_is_answered() -> None:
    async def ask() -> None:
        async def submit(*_: Any) -> Any:
            raise ValueError("an answer that nobody thought of")

        heard: asyncio.Queue[Any] = asyncio.Queue()
        carried, _ = replication(SimpleNamespace(submit=submit))
        carried._send(SimpleNamespace(), heard.put_nowait)
        peers: Any = BrokerPeers(lambda: SimpleNamespace(request_timeout_ms=1), SimpleNamespace())  # type: ignore[arg-type,return-value]
        peers._client = lambda _id, _api: Client()
        peers.send(2, SimpleNamespace(API_KEY=27), heard.put_nowait)
        async with asyncio.timeout(30):
            assert [await heard.get(), await heard.get()] == [None, None]

    asyncio.run(ask())
