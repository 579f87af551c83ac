"""The metadata log is synced by threads of its own: what waits for a network keeps no commit waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.schemas.schema_judgement import SchemaKey
from ottla.env.config.load import load
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.registry.http.forwarding import forward
from ottla.registry.peers import RegistryPeer
from ottla.registry.service import Registry
from ottla.registry.settings import RegistrySettings
from ottla.server.checks.schemas import RegistrySchemas
from ottla.server.formatting.storage import format_standalone
from ottla.server.node import Node

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


def test_topics_are_created_while_every_thread_of_the_loop_waits(tmp_path: Path) -> None:
    over = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(2)
        loop.set_default_executor(threads)
        config = load({**PROPERTIES, "log.dirs": str(tmp_path / "data")})
        format_standalone(config)
        node = Node(config)
        await node.start()
        stuck = [loop.run_in_executor(None, over.wait, 60) for _ in range(4)]
        try:
            broker = node.broker
            assert broker is not None
            async with asyncio.timeout(20):
                for name in ("a", "b", "c"):
                    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)])
                    response: Any = await broker.controller.submit(request, None)
                    assert response.topics[0].error_code == 0
            assert not any(thread.done() for thread in stuck)
        finally:
            over.set()
            await node.stop()
            await asyncio.gather(*stuck)

    asyncio.run(main())


def test_a_silent_writer_takes_no_thread_of_a_registrys_loop() -> None:
    """Whoever is elected in its place looks for the end of the topic in such a thread."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            writer = f"http://127.0.0.1:{silent.getsockname()[1]}"
            registry: Any = Registry(RegistrySettings(bootstrap_servers="127.0.0.1:9", timeout_s=60), "http://me")
            registry._writer_url = writer
            registry.find_writer = lambda **_: asyncio.sleep(0, RegistryPeer(writer, trusted=True))
            request: Any = SimpleNamespace(method="POST", target="/", body=b"", headers={})
            waiting = [asyncio.ensure_future(forward(registry, request)) for _ in range(4)]
            silent.settimeout(20)
            connections = [await asyncio.get_running_loop().run_in_executor(None, silent.accept) for _ in range(4)]
            async with asyncio.timeout(20):
                assert await asyncio.to_thread(lambda: "elected") == "elected"
            for connection, _ in connections:
                connection.close()
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await registry.stop()

    asyncio.run(main())


async def never_diverts(*_asked: object) -> None:
    raise AssertionError("nothing is put aside here")


def test_a_silent_registry_takes_no_thread_of_the_loop() -> None:
    over = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        schemas: Any = RegistrySchemas("http://127.0.0.1:9", never_diverts, max_schemas=10, timeout_s=60.0)
        entered: list[object] = []

        def wait(*asked: object) -> Any:
            entered.append(asked)
            over.wait(60)

        schemas._fetch = wait
        waiting = [asyncio.ensure_future(schemas.load({SchemaKey("", 1)}))]
        async with asyncio.timeout(20):
            while not entered:  # noqa: ASYNC110 - threads enter, the loop looks
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(lambda: "a disk is synced") == "a disk is synced"
        over.set()
        await asyncio.gather(*waiting)
        schemas.close()

    asyncio.run(main())


def test_partitions_are_synced_while_every_thread_of_the_loop_waits(tmp_path: Path) -> None:
    """flush.ms of a topic: its recovery point moves although the loop's own pool is stuck."""
    over = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        properties = {**PROPERTIES, "log.flush.scheduler.interval.ms": "20", "log.flush.interval.ms": "20"}
        config = load({**properties, "log.dirs": str(tmp_path / "data")})
        format_standalone(config)
        node = Node(config)
        await node.start()
        stuck = [loop.run_in_executor(None, over.wait, 60) for _ in range(2)]
        try:
            broker = node.broker
            assert broker is not None
            await broker.controller.submit(CreateTopicsRequest([CreatableTopic("a", 1, 1)]), None)
            async with asyncio.timeout(30):
                while "a" not in broker.replicas.by_name:  # noqa: ASYNC110 - the metadata comes by itself
                    await asyncio.sleep(0.01)
                partition = broker.replicas.get("a", 0)
                batch = build_batch([SimpleRecord(0, None, b"x")])
                partition.append_as_leader(batch, now_ms=broker.clock.time_ms(), required_acks=1, version=9)
                while partition.log.recovery_point < 1:  # noqa: ASYNC110 - a thread syncs
                    await asyncio.sleep(0.01)
        finally:
            over.set()
            await node.stop()
            await asyncio.gather(*stuck)

    asyncio.run(main())
