"""A TCP proxy that can lose answers: what the server has appended and answered, and the client never hears of.

Between an append and its answer a server is killed almost never; with the answers lost for a few milliseconds before
the kill, producers send again what is already in the log.
"""

from __future__ import annotations

import asyncio
import threading


class _Side(asyncio.Protocol):
    def __init__(self, proxy: LossyProxy, *, towards_client: bool) -> None:
        self._proxy = proxy
        self._towards_client = towards_client
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is None:
            self._proxy.connect(self)
        else:
            self.other.other = self
            for data in self.other._early:
                transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._towards_client and self._proxy.muted:
            self._proxy.lost_bytes += len(data)
        elif self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class LossyProxy:
    def __init__(self, port: int, target_port: int) -> None:
        self.muted = False
        self.lost_bytes = 0
        self._port = port
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="proxy", daemon=True)
        self._thread.start()
        started.wait(10)

    def _run(self, started: threading.Event) -> None:
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Side(self, towards_client=False), "127.0.0.1", self._port)
        )
        self._loop.call_soon(started.set)
        self._loop.run_forever()
        server.close()
        self._loop.close()

    def connect(self, client: _Side) -> None:
        task = self._loop.create_task(self._connect(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: _Side) -> None:
        server = _Side(self, towards_client=True)
        server.other = client
        try:
            await self._loop.create_connection(lambda: server, "127.0.0.1", self._target_port)
        except OSError:
            if client.transport is not None:
                client.transport.abort()
            return
        if client.transport is not None and client.transport.is_closing() and server.transport is not None:
            server.transport.abort()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
