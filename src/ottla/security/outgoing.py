"""This node as a client of other nodes: TLS and the login that the other's listener asks for.

Credentials are those of the listener: `listener.name.L.M.sasl.jaas.config` with `username` and `password`, the
mechanism `sasl.mechanism.inter.broker.protocol` or `sasl.mechanism.controller.protocol`. The settings and files are
read again for every connection, so that changes apply from the next connection on.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.env.config.broker.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.security.sasl import PLAIN, SCRAM_MECHANISMS, SaslFailure

if TYPE_CHECKING:
    import ssl

Send = Callable[[Any, int], Awaitable[Any]]
"""A request and its version -> the response."""


class PeerSecurity:
    """The security of connections to one listener of other nodes."""

    def __init__(self, config: BrokerConfig, listener: str, mechanism: str) -> None:
        self._config = config
        self._listener = listener
        self._mechanism = mechanism
        protocol = config.endpoints.protocols.get(listener, "PLAINTEXT")
        self._tls = protocol.endswith("SSL")
        self._sasl = protocol.startswith("SASL_")

    def context(self) -> ssl.SSLContext | None:
        """For the connection; None where there is no TLS. Raises ValueError when the settings give none."""
        if not self._tls:
            return None
        from ottla.security.tls import client_context

        return client_context(self._config.for_listener(self._listener))

    async def login(self, send: Send) -> None:
        """Log in. Raises SaslFailure if the other node refuses, or does not prove its own identity."""
        if not self._sasl:
            return
        from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest

        response = await send(SaslHandshakeRequest(self._mechanism), 1)
        if response.error_code:
            offered = ", ".join(response.mechanisms)
            raise SaslFailure(f"the other node does not accept {self._mechanism}, only {offered}")
        name, password = self._credentials()
        if self._mechanism == PLAIN:
            from ottla.security.plain import client_message

            await self._authenticate(send, client_message(name, password))
            return
        from ottla.security.scram import ScramClient

        client = ScramClient(self._mechanism, name, password, os.urandom(24).hex())
        message: bytes | None = client.first()
        while message is not None:
            message = client.respond(await self._authenticate(send, message))

    async def _authenticate(self, send: Send, token: bytes) -> bytes:
        from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest

        response = await send(SaslAuthenticateRequest(token), 2)
        if response.error_code:
            raise SaslFailure(f"{ErrorCode(response.error_code).name}: {response.error_message}")
        return bytes(response.auth_bytes)

    def _credentials(self) -> tuple[str, str]:
        from ottla.security.jaas import JaasError, parse_jaas

        if self._mechanism != PLAIN and self._mechanism not in SCRAM_MECHANISMS:
            raise SaslFailure(
                f"this node cannot log in to other nodes with {self._mechanism}; use PLAIN or SCRAM between nodes"
            )
        text = self._config.mechanism_value(self._listener, self._mechanism, "sasl.jaas.config")
        try:
            options = parse_jaas(text).options if text is not None else {}
        except JaasError as error:
            raise SaslFailure(f"sasl.jaas.config of {self._listener}: {error}") from None
        if "username" not in options or "password" not in options:
            raise SaslFailure(f"sasl.jaas.config of {self._listener} has no username and password for this node")
        return options["username"], options["password"]


def to_brokers(config: BrokerConfig) -> PeerSecurity | None:
    """None where brokers talk in plain text."""
    return _security(config, config.inter_broker_listener, config.sasl_mechanism_inter_broker_protocol)


def to_controllers(config: BrokerConfig) -> PeerSecurity | None:
    if not config.controller_listener_names:
        return None
    name = config.controller_listener_names[0].upper()
    return _security(config, name, config.sasl_mechanism_controller_protocol)


def _security(config: BrokerConfig, listener: str, mechanism: str) -> PeerSecurity | None:
    if config.endpoints.protocols.get(listener, "PLAINTEXT") == "PLAINTEXT":
        return None
    return PeerSecurity(config, listener, mechanism)
