"""A proxy that keeps one request back: its client loses the connection, sends the request again, and goes on. The request
that was kept arrives later, on a connection of its own, as one does that was on its way when the client gave up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

PRODUCE, END_TXN, TXN_OFFSET_COMMIT = 0, 26, 28


class DelayingProxy:
    """Keeps the first request of API `keep`; it arrives before the client gets the answer to the first request of API
    `until` that comes after the repetition. `late_answer` is what the server answers then."""

    def __init__(self, port: int, target_port: int, *, keep: int, until: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._keep, self._until = keep, until
        self._kept: bytes | None = None
        self._repeated = False
        self.late_answer: bytes | None = None
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                server = socket.create_connection(self._target)
                watched: set[int] = set()
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, server, watched), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, watched: set[int]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                api, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                with self._lock:
                    if api == self._keep and self._kept is None:
                        self._kept = frame
                        break
                    if api == self._until and self._repeated and self.late_answer is None:
                        watched.add(correlation_id)
                    self._repeated = self._repeated or api == self._keep
                server.sendall(frame)
        _close(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, watched: set[int]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _frame(server)
                with self._lock:
                    if struct.unpack_from(">i", frame, 4)[0] in watched and self.late_answer is None:
                        self.late_answer = self._deliver()
                client.sendall(frame)
        _close(client, server)

    def _deliver(self) -> bytes:
        """The answer's body."""
        assert self._kept is not None
        with socket.create_connection(self._target) as server:
            server.sendall(self._kept)
            return _frame(server)[8:]


def _frame(source: socket.socket) -> bytes:
    head = _read(source, 4)
    return head + _read(source, struct.unpack(">i", head)[0])


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _close(*sides: socket.socket) -> None:
    for side in sides:
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()
