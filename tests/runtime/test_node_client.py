"""The client between nodes: versions, correlation ids, timeouts, reconnection, its limit of requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

import pytest

from ottla.protocol.api import decode_request_header, encode_response
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.generated.vote_request import VoteRequest
from ottla.runtime.node_client import NodeClient, NodeUnavailable, UnsupportedByNode, _Wire, reachable
from ottla.server.run import new_event_loop
from tests.support.ports import free_port


class Server:
    """Answers ApiVersions with what it is told and Metadata with the cluster id of `answer`."""

    def __init__(self, *, ranges: tuple[tuple[int, int, int], ...] = ((3, 0, 12), (18, 0, 4))) -> None:
        self.ranges = ranges
        self.api_versions_max = 4
        self.connections = 0
        self.held: list[Callable[[], Awaitable[None]]] = []
        self.hold = False
        self.reverse_after = 0
        self.waiting = 0
        self.most_waiting = 0
        self.two_waiting = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation_id, client_id, _ = decode_request_header(frame)
                assert client_id == "tester"
                self.waiting += 1
                self.most_waiting = max(self.most_waiting, self.waiting)
                if self.waiting == 2:
                    self.two_waiting.set()
                if key == 18:
                    self._answer_versions(writer, version, correlation_id)
                elif self.hold:
                    continue
                elif self.reverse_after:
                    self.held.append(lambda c=correlation_id, v=version: self._answer(writer, v, c))  # type: ignore[misc]
                    if len(self.held) == self.reverse_after:
                        for answer in reversed(self.held):
                            await answer()
                        self.held.clear()
                else:
                    await self._answer(writer, version, correlation_id)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    def _answer_versions(self, writer: asyncio.StreamWriter, version: int, correlation_id: int) -> None:
        self.waiting -= 1
        keys = [ApiVersion(*entry) for entry in self.ranges]
        if version > self.api_versions_max:
            response, version = ApiVersionsResponse(error_code=35, api_keys=keys), 0
        else:
            response = ApiVersionsResponse(api_keys=keys)
        writer.write(b"".join(encode_response(response, version, correlation_id)))

    async def _answer(self, writer: asyncio.StreamWriter, version: int, correlation_id: int) -> None:
        self.waiting -= 1
        response = MetadataResponse(cluster_id=f"v{version}-{correlation_id}")
        writer.write(b"".join(encode_response(response, version, correlation_id)))


def run(
    body: Callable[[Server, NodeClient], Awaitable[None]], make: Callable[[], Server] = Server, **options: float
) -> None:
    async def main() -> None:
        peer = make()
        port = await peer.start()
        client = NodeClient("127.0.0.1", port, client_id="tester", **options)  # type: ignore[arg-type]
        try:
            await body(peer, client)
        finally:
            client.close()
            await peer.stop()

    for loop in (asyncio.new_event_loop, new_event_loop):
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())


def test_the_highest_common_version_is_spoken() -> None:
    async def body(server: Server, client: NodeClient) -> None:
        assert (await client.send(MetadataRequest())).cluster_id == "v12-2"
        assert (await client.send(MetadataRequest(), version=5)).cluster_id == "v5-3"
        with pytest.raises(UnsupportedByNode, match="VoteRequest"):
            await client.send(VoteRequest())
        assert server.connections == 1

    run(body)


def test_an_older_api_versions_is_asked_again() -> None:
    def make() -> Server:
        server = Server()
        server.api_versions_max = 2
        return server

    async def body(_server: Server, client: NodeClient) -> None:
        assert (await client.send(MetadataRequest())).cluster_id == "v12-3"

    run(body, make)


def test_answers_are_matched_by_correlation_id_not_by_order() -> None:
    async def body(server: Server, client: NodeClient) -> None:
        await client.send(MetadataRequest())
        server.reverse_after = 3
        answers = await asyncio.gather(*(client.send(MetadataRequest()) for _ in range(3)))
        assert [answer.cluster_id for answer in answers] == ["v12-3", "v12-4", "v12-5"]

    run(body)


def test_no_more_than_the_limit_are_in_flight() -> None:
    async def body(server: Server, client: NodeClient) -> None:
        server.hold = True
        sends = [asyncio.ensure_future(client.send(MetadataRequest())) for _ in range(10)]
        async with asyncio.timeout(10):
            await server.two_waiting.wait()
        assert (server.waiting, len([send for send in sends if not send.done()])) == (2, 10)
        assert server.most_waiting == 2
        client.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(result, NodeUnavailable) for result in results)

    run(body, max_in_flight=2)


def test_a_request_without_an_answer_costs_the_connection() -> None:
    async def body(server: Server, client: NodeClient) -> None:
        await client.send(MetadataRequest())  # else the 0.2 s may be over before it is connected
        server.hold = True
        with pytest.raises(NodeUnavailable, match=r"not answered in 0\.2 s"):
            await client.send(MetadataRequest(), timeout_ms=200)
        server.hold = False
        assert (await client.send(MetadataRequest())).cluster_id == "v12-2"
        assert server.connections == 2

    run(body)


def test_a_connection_that_is_lost_right_behind_its_handshake_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop may handle the loss before the coroutine that waits for the answer (simulator, seed 200)."""
    negotiate = _Wire.negotiate
    losses: list[bool] = []

    async def lost_at_its_end(wire: _Wire) -> None:
        await negotiate(wire)
        if losses and losses.pop():
            wire.connection_lost(None)

    monkeypatch.setattr(_Wire, "negotiate", lost_at_its_end)

    async def body(peer: Server, client: NodeClient) -> None:
        losses[:] = [True]
        with pytest.raises(NodeUnavailable, match="the connection was lost"):
            await client.send(MetadataRequest())
        assert await client.send(MetadataRequest())
        assert peer.connections == 2

    run(body, backoff_ms=1)


def test_it_comes_back_after_the_node_was_gone() -> None:
    lost: list[str] = []

    async def main() -> None:
        first = Server()
        port = await first.start(free_port())
        client = NodeClient("127.0.0.1", port, client_id="tester", backoff_ms=10, on_lost=lambda: lost.append("lost"))
        await client.send(MetadataRequest())
        assert await reachable("127.0.0.1", port, 5_000)
        await first.stop()
        with pytest.raises(NodeUnavailable):
            await client.send(MetadataRequest())
        assert lost == ["lost"]
        assert not await reachable("127.0.0.1", port, 5_000)
        second = Server()
        await second.start(port)
        async with asyncio.timeout(20):
            while True:
                try:
                    await client.send(MetadataRequest())
                    break
                except NodeUnavailable:
                    pass
        client.close()
        with pytest.raises(NodeUnavailable, match="closed"):
            await client.send(MetadataRequest())
        await second.stop()

    asyncio.run(main())


def test_a_client_that_is_closed_in_its_handshake_leaves_no_connection() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()
        asked = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            asked.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            ended.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        client = NodeClient("127.0.0.1", server.sockets[0].getsockname()[1], client_id="tester")
        request = asyncio.ensure_future(client.send(MetadataRequest()))
        await asyncio.wait_for(asked.wait(), 30)
        client.close()
        with pytest.raises(NodeUnavailable):
            await request
        await asyncio.wait_for(ended.wait(), 30)
        server.close()

    asyncio.run(scenario())
