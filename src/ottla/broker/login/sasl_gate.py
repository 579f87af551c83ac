"""The gate of a SASL connection: ApiVersions and the SASL APIs until the client has shown who it is, then everything.

States follow Kafka's SaslServerAuthenticator. A refusal leaves after `connection.failed.authentication.delay.ms` and the
connection closes with it; nothing is read meanwhile. A session with an end (connections.max.reauth.ms, a token's expiry)
must log in again with the same mechanism as the same principal; after its end any other request closes the connection.
"""

from __future__ import annotations

from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.protocol.api import decode_request_header, encode_response
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse
from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.protocol.generated.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest
from ottla.protocol.generated.sasl_handshake_response import SaslHandshakeResponse
from ottla.protocol.primitives import DecodeError, Message, Pieces
from ottla.security.principals import user
from ottla.security.sasl import SaslFailure, SaslServer

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.broker.login.listener_sasl import ListenerSasl

log = get_logger(__name__)

MIN_REAUTH_INTERVAL_MS = 1000.0
_short = Struct(">h").unpack_from
_int = Struct(">i").pack


class State(Enum):
    FIRST = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake: ApiVersions was answered already."""
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


class SaslGate:
    __slots__ = (
        "_bare_tokens", "_expires_at", "_last_reauth", "_mechanism", "_refused_mechanism", "_sasl", "_server", "state",
    )  # fmt: skip

    def __init__(self, sasl: ListenerSasl) -> None:
        self._sasl = sasl
        self.state = State.FIRST
        self._server: SaslServer | None = None
        self._mechanism: str | None = None
        self._bare_tokens = False
        self._refused_mechanism: str | None = None
        self._expires_at: float | None = None
        self._last_reauth = 0.0

    def takes(self, connection: Connection, frame: memoryview) -> bool:
        """Whether the gate handled the frame; a refused frame is handled too."""
        if self.state is State.COMPLETE:
            return self._expires_at is not None and self._in_session(connection, frame)
        if self.state is State.FAILED:
            return True
        if self.state is State.AUTHENTICATE and self._bare_tokens:
            self._bare_token(connection, bytes(frame))
            return True
        api_key = _short(frame)[0] if len(frame) >= 2 else -1
        if api_key == ApiKey.API_VERSIONS and self.state is State.FIRST:
            return False
        if self.state is State.AUTHENTICATE:
            self._authenticate(connection, frame)
        elif api_key == ApiKey.SASL_HANDSHAKE:
            self._handshake(connection, frame)
        else:
            self._fail(connection, None, f"a request with API key {api_key} before the login")
        return True

    def on_api_versions(self) -> None:
        """ApiVersions was answered without an error: a second ApiVersions request is refused."""
        if self.state is State.FIRST:
            self.state = State.HANDSHAKE

    # The exchange

    def _handshake(self, connection: Connection, frame: memoryview) -> None:
        _, version, correlation_id, _, pos = decode_request_header(frame)
        if not SaslHandshakeRequest.MIN_VERSION <= version <= SaslHandshakeRequest.MAX_VERSION:
            raise DecodeError(f"SaslHandshake v{version} is not supported")
        request, _ = SaslHandshakeRequest.decode(frame, pos, version)
        mechanism = request.mechanism
        enabled = list(self._sasl.enabled)
        if mechanism not in enabled:
            response = SaslHandshakeResponse(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), enabled)
            self._fail(connection, encode_response(response, version, correlation_id), "unsupported SASL mechanism")
            return
        again = self._mechanism is not None and mechanism != self._mechanism
        self._refused_mechanism = mechanism if again else None
        self._mechanism = self._mechanism or mechanism
        self._bare_tokens = version == 0
        self._server = self._sasl.new_server(mechanism)
        self.state = State.AUTHENTICATE
        connection.peer.send(encode_response(SaslHandshakeResponse(0, enabled), version, correlation_id))

    def _authenticate(self, connection: Connection, frame: memoryview) -> None:
        api_key, version, correlation_id, _, pos = decode_request_header(frame)
        if api_key != ApiKey.SASL_AUTHENTICATE:
            answer = _out_of_turn(api_key, version, correlation_id)
            self._fail(connection, answer, f"a request with API key {api_key} inside the login")
            return
        if not SaslAuthenticateRequest.MIN_VERSION <= version <= SaslAuthenticateRequest.MAX_VERSION:
            raise DecodeError(f"SaslAuthenticate v{version} is not supported")
        request, _ = SaslAuthenticateRequest.decode(frame, pos, version)
        try:
            token, lifetime_ms = self._evaluate(connection, bytes(request.auth_bytes))
        except SaslFailure as failure:
            response = SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message=self._words(connection, failure)
            )
            self._fail(connection, encode_response(response, version, correlation_id), "wrong credentials")
            return
        response = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        connection.peer.send(encode_response(response, version, correlation_id))

    def _bare_token(self, connection: Connection, token: bytes) -> None:
        """After SaslHandshake v0 the tokens come without a request around them; a failure just closes."""
        try:
            answer, _ = self._evaluate(connection, token)
        except SaslFailure:
            self._fail(connection, None, "wrong credentials")
            return
        connection.peer.send([_int(len(answer)), answer])

    def _evaluate(self, connection: Connection, token: bytes) -> tuple[bytes, int]:
        server = self._server
        if server is None:
            raise SaslFailure
        if not connection.dispatcher.failed_logins.allows(connection.client_host):
            raise DecodeError("too many failed logins from this address are being refused")
        if self._refused_mechanism is not None:
            raise SaslFailure(
                f"SASL mechanism '{self._refused_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._mechanism}'"
            )
        answer = server.evaluate(token)
        if not server.complete:
            return answer, 0
        principal = user(server.name)
        if connection.authenticated and principal != connection.principal:
            raise SaslFailure(
                f"Cannot change principals during re-authentication from {connection.principal} to {principal}"
            )
        lifetime_ms = self._sasl.session_lifetime_ms(self._mechanism or "", server.expires_at_ms)
        self._expires_at = self._now(connection) + lifetime_ms if lifetime_ms > 0 else None
        self._server = None
        self.state = State.COMPLETE
        connection.on_authenticated(principal, token=server.token_authenticated)
        return answer, lifetime_ms

    def _words(self, connection: Connection, failure: SaslFailure) -> str:
        if failure.args and failure.args[0]:
            return str(failure.args[0])
        what = "re-authentication" if connection.authenticated else "authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _fail(self, connection: Connection, answer: Pieces | None, reason: str) -> None:
        self.state = State.FAILED
        self._server = None
        connection.fail_authentication(answer, reason, self._sasl.failure_delay_ms)

    # A session with an end

    def _now(self, connection: Connection) -> float:
        return connection.dispatcher.broker.clock.monotonic_ms()

    def _in_session(self, connection: Connection, frame: memoryview) -> bool:
        now = self._now(connection)
        if (
            len(frame) >= 2
            and _short(frame)[0] == ApiKey.SASL_HANDSHAKE
            and now - self._last_reauth >= MIN_REAUTH_INTERVAL_MS
        ):
            self._last_reauth = now
            self.state = State.HANDSHAKE
            self._handshake(connection, frame)
            return True
        if self._expires_at is not None and now > self._expires_at:
            connection.refuse("the session has ended and the client did not log in again")
            return True
        return False


def _out_of_turn(api_key: int, version: int, correlation_id: int) -> Pieces | None:
    """The two other requests of a login get ILLEGAL_SASL_STATE; any other request (None) closes the connection."""
    code = int(ErrorCode.ILLEGAL_SASL_STATE)
    answer: Message
    if api_key == ApiKey.SASL_HANDSHAKE:
        answer = SaslHandshakeResponse(code)
    elif api_key == ApiKey.API_VERSIONS:
        answer = ApiVersionsResponse(code)
    else:
        return None
    return encode_response(answer, version, correlation_id) if version <= answer.MAX_VERSION else None
