"""One broker's connection: TLS, SASL, version negotiation, then one request at a time.

Every wait has a deadline. What fails before an answer is a ClientError; the connection is then closed for good.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from ottla.client.errors import AuthenticationFailed, CallTimeout, ConnectionFailed, UnsupportedVersion
from ottla.client.settings import ClientSettings, jaas_options
from ottla.model.errors import ErrorCode
from ottla.protocol.api import ApiKey, encode_request, response_header_version
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse
from ottla.protocol.generated.index import APIS
from ottla.protocol.primitives import DecodeError, Message, skip_tags

Answer = TypeVar("Answer", bound=Message)
_MAX_ANSWER_BYTES = 1 << 30
_FIRST_BYTES = 64 << 10


class BrokerConnection:
    def __init__(self, host: str, port: int, settings: ClientSettings, deadline: float) -> None:
        self.host, self.port = host, port
        self._settings = settings
        self._correlation_id = 0
        self._unanswered: deque[int] = deque()
        """Correlation ids of the requests whose responses are still to come."""
        self._versions: dict[int, tuple[int, int]] = {}
        self.features = ApiVersionsResponse()
        self._socket: socket.socket = self._connect(deadline)
        try:
            self._negotiate(deadline)
            if settings.sasl:
                self._authenticate(deadline)
        except BaseException:  # also a Ctrl-C must not leave the socket open
            self.close()
            raise

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """What the broker answers: API key to its lowest and highest version."""
        return self._versions

    def usable_version(self, key: int, highest: int | None = None) -> int | None:
        """The highest version that both sides have, not above `highest`, or None."""
        ours, theirs = APIS[key], self._versions.get(key)
        if theirs is None:
            return None
        limit = ours.max_version - ours.latest_unstable
        highest = min(limit if highest is None else highest, limit, theirs[1])
        return highest if highest >= max(ours.min_version, theirs[0]) else None

    def call(
        self,
        request: Message,
        answer: type[Answer],
        deadline: float,
        version: int | None = None,
        *,
        highest: int | None = None,
    ) -> Answer:
        """Send and wait; `deadline` is on time.monotonic(). Without `version`, the highest version that both sides have,
        not above `highest`.
        """
        if version is None:
            version = self.usable_version(request.API_KEY, highest)
            if version is None:
                raise UnsupportedVersion(f"The node does not support {ApiKey(request.API_KEY).name}")
        self.send(request, version, deadline)
        return self._decoded(bytes(self._frame(deadline)), answer, version, request.API_KEY)

    def send(self, request: Message, version: int, deadline: float) -> None:
        """Send only. A caller that keeps a request ahead reads the responses with `receive`, in order."""
        self._correlation_id += 1
        self._unanswered.append(self._correlation_id)
        pieces = encode_request(request, version, self._correlation_id, self._settings.client_id)
        with self._closing_on_errors():
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(b"".join(pieces))

    def receive(self, answer: type[Answer], version: int, deadline: float) -> Answer:
        """The response to the oldest request of `send`. Its bytes fields are views of one buffer: nothing is copied."""
        return self._decoded(self._frame(deadline), answer, version, answer.API_KEY)

    def enlarge_receive_buffer(self, size: int) -> None:
        """For long reads: the socket's buffer in the kernel."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._socket.close()

    def _decoded(self, body: bytes | memoryview, answer: type[Answer], version: int, api_key: int) -> Answer:
        expected = self._unanswered.popleft()
        try:
            (correlation_id,) = struct.unpack_from(">i", body)
            if correlation_id != expected:
                raise DecodeError(f"answer {correlation_id} to request {expected}")
            position = skip_tags(body, 4) if response_header_version(api_key, version) else 4
            decoded, _ = answer.decode(body, position, version)
        except (DecodeError, struct.error, IndexError) as reason:
            self.close()
            raise ConnectionFailed(
                f"{self.host}:{self.port} did not answer with a Kafka response: {reason}"
            ) from reason
        return decoded

    def _connect(self, deadline: float) -> socket.socket:
        where = f"{self.host}:{self.port}"
        try:
            plain = socket.create_connection((self.host, self.port), timeout=_left(deadline))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as reason:
            raise ConnectionFailed(f"{where}: {reason}") from reason
        if not self._settings.tls:
            return plain
        from ottla.client.tls import tls_context
        from ottla.security.tls_level import weakness

        try:
            return tls_context(self._settings.ssl).wrap_socket(plain, server_hostname=self.host)
        except ssl.SSLCertVerificationError as reason:
            plain.close()
            raise AuthenticationFailed(f"SSL handshake failed: {weakness(reason) or reason.verify_message}") from reason
        except ssl.SSLError as reason:
            plain.close()
            raise AuthenticationFailed(f"SSL handshake failed: {reason.reason or reason}") from reason
        except OSError as reason:
            plain.close()
            raise ConnectionFailed(f"{where}: {reason}") from reason

    def _negotiate(self, deadline: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
        answer = self.call(request, ApiVersionsResponse, deadline, 3)
        if answer.error_code:
            raise ConnectionFailed(f"{self.host}:{self.port}: {ErrorCode(answer.error_code).name}")
        self.features = answer
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _authenticate(self, deadline: float) -> None:
        from ottla.client.sasl import exchange_for
        from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest
        from ottla.protocol.generated.sasl_authenticate_response import SaslAuthenticateResponse
        from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest
        from ottla.protocol.generated.sasl_handshake_response import SaslHandshakeResponse

        mechanism = self._settings.sasl_mechanism
        exchange = exchange_for(mechanism, jaas_options(self._settings.sasl_jaas_config))
        shaken = self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, deadline, 1)
        if shaken.error_code:
            raise AuthenticationFailed(
                f"Client SASL mechanism '{mechanism}' not enabled in the server, "
                f"enabled mechanisms are [{', '.join(shaken.mechanisms)}]"
            )
        token = next(exchange)
        while True:
            answer = self.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, deadline)
            if answer.error_code:
                raise AuthenticationFailed(answer.error_message or "Authentication failed")
            try:
                token = exchange.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _frame(self, deadline: float) -> memoryview:
        with self._closing_on_errors():
            (size,) = struct.unpack(">i", self._exactly(4, deadline))
            if not 4 <= size <= _MAX_ANSWER_BYTES:
                raise ConnectionFailed(f"{self.host}:{self.port} does not use Kafka's protocol on this port")
            return self._exactly(size, deadline)

    @contextmanager
    def _closing_on_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as reason:
            self.close()
            raise CallTimeout(f"{self.host}:{self.port} did not answer in time") from reason
        except ssl.SSLError as reason:
            self.close()
            # In TLS 1.3 the handshake is over for us before the server has looked at our certificate: it refuses it here.
            if "CERTIFICATE" in (reason.reason or ""):
                raise AuthenticationFailed(f"SSL handshake failed: {reason.reason}") from reason
            raise ConnectionFailed(f"{self.host}:{self.port}: {reason}") from reason
        except OSError as reason:
            self.close()
            raise ConnectionFailed(f"{self.host}:{self.port}: {reason}") from reason
        except ConnectionFailed:
            self.close()
            raise

    def _exactly(self, size: int, deadline: float) -> memoryview:
        """A large buffer is made after its first bytes are there: a server of another protocol names sizes at random."""
        first = memoryview(bytearray(min(size, _FIRST_BYTES)))
        self._fill(first, deadline)
        if len(first) == size:
            return first
        buffer = memoryview(bytearray(size))
        buffer[: len(first)] = first
        self._fill(buffer[len(first) :], deadline)
        return buffer

    def _fill(self, buffer: memoryview, deadline: float) -> None:
        filled = 0
        while filled < len(buffer):
            self._socket.settimeout(_left(deadline))
            count = self._socket.recv_into(buffer[filled:])
            if not count:
                raise ConnectionFailed(f"{self.host}:{self.port} closed the connection")
            filled += count


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    return left
