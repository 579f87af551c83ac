"""Heartbeats have a connection of their own: requests that wait at the controller keep none of them waiting."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Self

from ottla.env.config.load import load
from ottla.protocol.api import decode_request_header, encode_response, response_class
from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.alter_partition_request import AlterPartitionRequest
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.envelope_response import EnvelopeResponse
from ottla.protocol.generated.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from ottla.protocol.generated.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.protocol.generated.index import APIS
from ottla.protocol.generated.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.server.cluster.controller_channel import ActiveControllerChannel, ControllerAddress
from ottla.server.cluster.peers import BrokerPeers

HEARTBEAT, ENVELOPE, API_VERSIONS, MARKERS = 63, 58, 18, 27
ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, ASSIGN_DIRECTORIES, CONFIGS = 67, 56, 73, 44
WORKS_MS = 60_000
"""Never waited for where the answer comes."""


class InOrder:
    """A node that answers the requests of each connection in order, and those of `held` APIs when it is told to."""

    def __init__(self, *held: int) -> None:
        self.held = set(held)
        self.seen: Counter[int] = Counter()
        self.connections: dict[int, set[int]] = {}
        """API key -> the connections that carried it."""
        self.changed = asyncio.Condition()
        self._connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, version, correlation_id, _, _ = decode_request_header(await reader.readexactly(size))
                async with self.changed:
                    self.seen[key] += 1
                    self.connections.setdefault(key, set()).add(connection)
                    self.changed.notify_all()
                    await self.changed.wait_for(lambda key=key: key not in self.held)
                writer.write(b"".join(encode_response(answer(key), version, correlation_id)))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(condition)

    async def release(self) -> None:
        async with self.changed:
            self.held.clear()
            self.changed.notify_all()


def answer(key: int) -> Any:
    if key == API_VERSIONS:
        return ApiVersionsResponse(api_keys=[ApiVersion(k, a.min_version, a.max_version) for k, a in APIS.items()])
    if key == ENVELOPE:
        inner = b"".join(bytes(piece) for piece in encode_response(IncrementalAlterConfigsResponse(), 1, 0))
        return EnvelopeResponse(response_data=inner[4:])
    return response_class(key)()


def client_context() -> Any:
    return SimpleNamespace(
        api_key=CONFIGS, version=1, client_id="client", principal="User:ANONYMOUS", client_host="127.0.0.1"
    )


def with_channel(body: Callable[[InOrder, ActiveControllerChannel], Awaitable[None]], *held: int) -> None:
    async def main() -> None:
        async with InOrder(*held) as controller:
            address = ControllerAddress(100, "127.0.0.1", controller.port)
            channel = ActiveControllerChannel(1, local=None, is_active=lambda: False, leader=lambda: address)
            try:
                await body(controller, channel)
            finally:
                channel.close()

    asyncio.run(main())


def forward(channel: ActiveControllerChannel, timeout_ms: float = WORKS_MS) -> asyncio.Future[Any]:
    return asyncio.ensure_future(
        channel.submit(IncrementalAlterConfigsRequest(), client_context(), timeout_ms=timeout_ms)
    )


async def end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_heartbeats_do_not_wait_for_requests_that_the_controller_does_not_answer() -> None:
    own = (AlterPartitionRequest, AssignReplicasToDirsRequest, AllocateProducerIdsRequest)
    held = (ENVELOPE, ALTER_PARTITION, ASSIGN_DIRECTORIES, ALLOCATE_PRODUCER_IDS)

    async def body(controller: InOrder, channel: ActiveControllerChannel) -> None:
        waiting = [forward(channel) for _ in range(50)]
        waiting += [asyncio.ensure_future(channel.submit(kind(), None)) for kind in own for _ in range(10)]
        await controller.until(lambda: controller.seen[ENVELOPE] > 0)
        codes = [
            (await channel.submit(BrokerHeartbeatRequest(broker_id=1), None, timeout_ms=10_000)).error_code
            for _ in range(5)
        ]
        assert codes == [0] * 5, "a healthy broker would be fenced"
        await controller.until(lambda: all(controller.seen[key] for key in held))
        assert all(not request.done() for request in waiting)
        await end(*waiting)

    with_channel(body, *held)


def test_a_heartbeat_that_times_out_drops_nobody_elses_connection() -> None:
    async def body(controller: InOrder, channel: ActiveControllerChannel) -> None:
        waiting = [forward(channel), asyncio.ensure_future(channel.submit(AlterPartitionRequest(), None))]
        await controller.until(lambda: controller.seen[ENVELOPE] == controller.seen[ALTER_PARTITION] == 1)
        beat = await channel.submit(BrokerHeartbeatRequest(broker_id=1), None, timeout_ms=200)
        assert beat.error_code == 7, "the controller does not answer"
        await controller.release()
        await asyncio.gather(*waiting)
        assert (controller.seen[ENVELOPE], controller.seen[ALTER_PARTITION]) == (1, 1), "decided twice"
        assert (await channel.submit(BrokerHeartbeatRequest(broker_id=1), None)).error_code == 0

    with_channel(body, HEARTBEAT, ENVELOPE, ALTER_PARTITION)


def test_a_request_whose_turn_does_not_come_drops_nobody_elses_connection() -> None:
    """Five requests are in flight; the sixth gives up before it was sent."""

    async def body(controller: InOrder, channel: ActiveControllerChannel) -> None:
        first = [forward(channel) for _ in range(5)]
        await controller.until(lambda: controller.seen[ENVELOPE] == 1)
        late = await forward(channel, timeout_ms=200)
        assert late.responses == [], "there is no answer for any resource: it timed out"
        await controller.release()
        await asyncio.gather(*first)
        assert len(controller.connections[ENVELOPE]) == 1
        assert controller.seen[ENVELOPE] == 5

    with_channel(body, ENVELOPE)


def test_a_new_leader_gets_every_kind_of_request() -> None:
    async def body(controller: InOrder, channel: ActiveControllerChannel) -> None:
        waiting = forward(channel)
        await channel.submit(BrokerHeartbeatRequest(broker_id=1), None)
        await controller.until(lambda: controller.seen[ENVELOPE] == 1)
        async with InOrder() as successor:
            address = ControllerAddress(101, "127.0.0.1", successor.port)
            channel._leader = lambda: address
            await channel.submit(BrokerHeartbeatRequest(broker_id=1), None)
            await waiting
            assert (successor.seen[HEARTBEAT], successor.seen[ENVELOPE]) == (1, 1)

    with_channel(body, ENVELOPE)


def test_a_verification_does_not_wait_for_markers() -> None:
    """A marker is answered when its replicas have it; whoever produces in another transaction must not wait for that."""

    async def main() -> None:
        async with InOrder(MARKERS) as node:
            listener = SimpleNamespace(host="127.0.0.1", port=node.port)
            metadata: Any = SimpleNamespace(
                image=SimpleNamespace(brokers={2: SimpleNamespace(listeners={"PLAINTEXT": listener})})
            )
            config = load({"process.roles": "broker", "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092",
                           "controller.quorum.voters": "100@127.0.0.1:9093", "controller.listener.names": "CONTROLLER"})  # fmt: skip
            peers = BrokerPeers(lambda: config, metadata)
            answered: asyncio.Queue[Any] = asyncio.Queue()
            markers: asyncio.Queue[Any] = asyncio.Queue()
            for _ in range(10):
                peers.send(2, WriteTxnMarkersRequest(), markers.put_nowait)
            await node.until(lambda: node.seen[MARKERS] > 0)
            for _ in range(3):
                peers.send(2, AddPartitionsToTxnRequest(), answered.put_nowait)
                async with asyncio.timeout(20):
                    assert await answered.get() is not None
            assert markers.empty()
            peers.close()

    asyncio.run(main())
