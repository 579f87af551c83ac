"""What a listener accepts."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from ottla.runtime.buffers import BufferPool
from ottla.runtime.listener import Listener, ListenerLimits
from ottla.server.run import new_event_loop


class Accepting:
    """A listening socket whose connections come from a list."""

    def __init__(self, *connections: tuple[socket.socket, Any]) -> None:
        self._connections = list(connections)

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._connections:
            raise BlockingIOError
        return self._connections.pop(0)

    def fileno(self) -> int:
        return -1


@pytest.mark.parametrize("gone_first", [True, False])
def test_a_peer_that_has_gone_has_no_address_on_macos(gone_first: bool) -> None:
    """`accept` succeeds there and returns None for the address; the connections behind it are accepted too."""

    async def main() -> None:
        gone, other_end = socket.socketpair()
        here, there = socket.socketpair()
        connections = [(gone, None), (here, ("127.0.0.1", 9))]
        accepting: Any = Accepting(*(connections if gone_first else reversed(connections)))
        limits = ListenerLimits(max_connections=10, max_connections_per_ip=10, idle_ms=1000, max_frame=1000)
        dispatcher: Any = None
        listener = Listener("PLAINTEXT", accepting, dispatcher, BufferPool(), limits)
        listener._on_acceptable()
        assert len(listener) == 1
        assert gone.fileno() == -1, "closed"
        listener.stop()
        other_end.close()
        there.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
