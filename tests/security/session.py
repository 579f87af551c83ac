"""A client of our own codec that logs in by SASL and then sends what a test gives it, over plain sockets or TLS."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Any, Self

from ottla.protocol.api import encode_request, response_class, response_header_version
from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest
from ottla.protocol.primitives import Message, skip_tags
from ottla.security.plain import client_message
from ottla.security.scram import ScramClient


class Closed(Exception):
    """The server closed the connection instead of an answer."""


class Session:
    def __init__(self, port: int, *, context: ssl.SSLContext | None = None, timeout: float = 20) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._correlation_id = 0

    def send(self, request: Message, version: int, client_id: str = "matrix") -> None:
        self._correlation_id += 1
        self.socket.sendall(b"".join(encode_request(request, version, self._correlation_id, client_id)))

    def receive(self, request: Message, version: int) -> Any:
        frame = self.read_frame()
        assert int.from_bytes(frame[:4], "big") == self._correlation_id
        pos = skip_tags(frame, 4) if response_header_version(request.API_KEY, version) else 4
        response, _ = response_class(request.API_KEY).decode(frame, pos, version)
        return response

    def ask(self, request: Message, version: int | None = None, client_id: str = "matrix") -> Any:
        version = request.MAX_VERSION if version is None else version
        self.send(request, version, client_id)
        return self.receive(request, version)

    def read_frame(self) -> bytes:
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            data += part
        return data

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(token), version)

    def plain(self, name: str, password: str) -> Self:
        assert self.handshake("PLAIN").error_code == 0
        response = self.authenticate(client_message(name, password))
        assert response.error_code == 0, response.error_message
        return self

    def scram(self, mechanism: str, name: str, password: str, *, token: bool = False) -> Any:
        """The last SaslAuthenticate response."""
        assert self.handshake(mechanism).error_code == 0
        client = ScramClient(mechanism, name, password, "fyko+d2lbbFgONRv9qkxdawL", token=token)
        response = self.authenticate(client.first())
        if response.error_code:
            return response
        final = client.respond(bytes(response.auth_bytes))
        response = self.authenticate(final or b"")
        if not response.error_code:
            client.respond(bytes(response.auth_bytes))
        return response

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
