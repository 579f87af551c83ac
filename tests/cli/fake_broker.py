"""A broker of lies: it answers Kafka's protocol, each API as the test says, so that faults can be seeded.

Only for what a healthy real server cannot be made to say; APIs that a test does not set get an empty healthy answer. A
Metadata answer that names no broker is completed with this one, whose port nobody knows before.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ottla.protocol.api import decode_request_header, encode_response, request_class, response_class
from ottla.protocol.generated.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.protocol.generated.index import APIS
from ottla.protocol.generated.metadata_response import MetadataResponse, MetadataResponseBroker

Answer = Callable[[Any], Any]


class FakeBroker:
    def __init__(self, answers: dict[int, Answer | None] | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._tls = tls
        self._answers: dict[int, Answer | None] = {
            3: lambda _: MetadataResponse(controller_id=1),
            18: lambda _: ApiVersionsResponse(
                api_keys=[ApiVersion(k, a.min_version, a.max_version) for k, a in APIS.items()]
            ),
            **(answers or {}),
        }
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with self._tls.wrap_socket(connection, server_side=True) if self._tls else connection as stream:
                while True:
                    size = struct.unpack(">i", _exactly(stream, 4))[0]
                    if not 0 < size < 1 << 20:
                        return
                    if not self._one(stream, _exactly(stream, size)):
                        return
        except (OSError, EOFError):
            return

    def _one(self, stream: socket.socket, frame: bytes) -> bool:
        key, version, correlation_id, _, position = decode_request_header(frame)
        answer = self._answers.get(key, lambda _: response_class(key)())
        if answer is None:
            return False
        request, _ = request_class(key).decode(frame, position, version)
        response = answer(request)
        if isinstance(response, MetadataResponse) and not response.brokers:
            response.brokers = [MetadataResponseBroker(1, "127.0.0.1", self.port)]
        stream.sendall(b"".join(encode_response(response, version, correlation_id)))
        return True


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
