"""A tiny raw-socket Kafka client: it sends the bytes it is given, right or wrong, and reads whole response frames.

Nothing here knows a message's fields: a test builds the body itself, so that a bug in our codec cannot hide itself.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None = "frames", *, flexible: bool = False
) -> bytes:
    """Request header v1, or v2 when `flexible` (client_id keeps its int16 length; a tag byte follows)."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    return struct.pack(">hhi", api_key, version, correlation_id) + name + (b"\0" if flexible else b"")


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class CutFrame(ConnectionError, EOFError):
    """The server died while it answered: as with a lost connection, what it did is not known."""


class RawConnection:
    """One TCP connection; every wait is bounded by `timeout` seconds."""

    def __init__(self, host: str, port: int, *, timeout: float = 30) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self._correlation_id = 0

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        self.send_raw(frame(payload))

    def read_frame(self) -> bytes | None:
        """The next response frame without its length; None when the server closed the connection."""
        head = self._read(4)
        if head is None:
            return None
        payload = self._read(struct.unpack(">i", head)[0])
        if payload is None:
            raise CutFrame("the connection closed inside a frame")
        return payload

    def request(
        self, api_key: int, version: int, body: bytes, *, flexible: bool = False, client_id: str | None = "frames"
    ) -> bytes | None:
        """Send a request with its header, check the response's correlation id and return what follows it."""
        self._correlation_id += 1
        sent = self._correlation_id
        self.send_frame(request_header(api_key, version, sent, client_id, flexible=flexible) + body)
        answer = self.read_frame()
        if answer is None:
            return None
        got = struct.unpack(">i", answer[:4])[0]
        if got != sent:
            raise ValueError(f"correlation id {got} instead of {sent}")
        return answer[4:]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, length: int) -> bytes | None:
        parts: list[bytes] = []
        missing = length
        while missing:
            try:
                part = self.socket.recv(min(missing, 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)
