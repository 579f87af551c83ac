"""HTTP answers of processes that may be killed: whole, or none at all. And a server that cuts its answers."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
from types import TracebackType
from typing import Self


def whole(answer: http.client.HTTPResponse | urllib.error.HTTPError) -> bytes:
    """The body; ConnectionError when the server died before the end of it, so that what it did is not known."""
    try:
        data = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer was cut off: {error!r}") from error
    headers = answer.headers
    bounded = {"content-length", "transfer-encoding"} & {name.lower() for name in headers}
    if not bounded and "close" not in (headers.get("Connection") or "").lower():
        raise ConnectionError("the headers were cut off")
    return data


class CuttingServer:
    """Answers every request with `sent` and closes the connection, as a process does that is killed while it writes."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.requests = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(65536)
            if not part:
                return
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        self.requests += 1
        connection.sendall(self._sent)


def cut_answers() -> dict[str, bytes]:
    """By the place of the cut."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return {
        "status line": b"HTT",
        "headers": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Le",
        "body": head + b'Content-Length: 20\r\n\r\n{"id": 1',
        "number": head + b"Content-Length: 3\r\n\r\n12",
        "chunk": head + b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"id": 1',
        "chunks": head + b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"id": 1\r\n',
        "error": b'HTTP/1.1 500 Oh\r\nContent-Length: 40\r\n\r\n{"error_code": 50001',
        "error chunk": b'HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{"error_code": 50001',
        "nothing": b"",
    }
