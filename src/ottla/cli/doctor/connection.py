"""The way to the brokers, step by step: address, DNS, TCP, TLS, protocol, SASL, then what the brokers advertise.

Each step reports its own faults. The doctor tries the next step only if the step before succeeded.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.doctor.findings import Finding, error, ok, warning
from ottla.client.connection import BrokerConnection
from ottla.client.errors import AuthenticationFailed, BadSettings, CallTimeout, ClientError, ConnectionFailed
from ottla.client.settings import ClientSettings, client_settings, parse_addresses
from ottla.security.hosts import is_loopback

if TYPE_CHECKING:
    from ottla.cli.options.profiles import Profile
    from ottla.protocol.generated.metadata_response import MetadataResponse

SECONDS = 5.0
_EXPIRES_SOON_S = 14 * 86400
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "UNEXPECTED_EOF_WHILE_READING"}
"""OpenSSL's reasons for a peer that does not use TLS, or that closes the connection as a plaintext broker does."""


class Reached:
    """What the connection checks found, for those that come after them."""

    def __init__(self) -> None:
        self.metadata: MetadataResponse | None = None


def check_connection(profile: Profile, reached: Reached, seconds: float = SECONDS) -> Iterator[Finding]:
    try:
        settings = client_settings(profile.bootstrap, profile.properties, client_id="ottla-doctor")
        addresses = parse_addresses(profile.bootstrap)
    except BadSettings as reason:
        yield error("address", str(reason), "write brokers as HOST:PORT,HOST:PORT, and check the client's properties")
        return
    for host, port in addresses:
        yield from _check_broker(host, port, settings, reached, seconds)
    if reached.metadata is not None:
        yield from _check_advertised(reached.metadata, addresses, seconds)


def _check_broker(
    host: str, port: int, settings: ClientSettings, reached: Reached, seconds: float
) -> Iterator[Finding]:
    where = f"{host}:{port}"
    unreachable = _tcp(host, port, seconds)
    if unreachable is not None:
        yield unreachable
        return
    if settings.tls:
        problem = _tls(host, port, settings, seconds)
        if problem is not None:
            yield problem
            if problem.level == "error":
                return
    deadline = time.monotonic() + seconds
    try:
        connection = BrokerConnection(host, port, settings, deadline)
    except AuthenticationFailed as reason:
        yield _sasl(where, str(reason))
        return
    except BadSettings as reason:
        yield error("sasl-settings", f"{where}: {reason}", "set username and password in sasl.jaas.config")
        return
    except (ConnectionFailed, CallTimeout) as reason:
        yield _what_answers(host, port, str(reason), seconds)
        return
    try:
        yield from _metadata(connection, where, reached, deadline)
    finally:
        connection.close()


def _metadata(connection: BrokerConnection, where: str, reached: Reached, deadline: float) -> Iterator[Finding]:
    from ottla.protocol.generated.metadata_request import MetadataRequest
    from ottla.protocol.generated.metadata_response import MetadataResponse

    if connection.usable_version(MetadataRequest.API_KEY) is None:
        if MetadataRequest.API_KEY not in connection.versions:
            yield error(
                "controller-listener",
                f"{where} is a controller's listener, which serves no clients",
                "use a broker's port; see its `listeners` and `controller.listener.names`",
            )
            return
        low, high = connection.versions[MetadataRequest.API_KEY]
        yield error("api-versions", f"{where} has Metadata {low}-{high} only", "use a broker of Kafka 2.1 or newer")
        return
    try:
        metadata = connection.call(MetadataRequest(None), MetadataResponse, deadline)
    except ClientError as reason:
        yield error(
            "sasl-required",
            f"{where} answers in Kafka's protocol and then closes the connection of a client that has "
            f"not logged in ({reason})",
            "set security.protocol to SASL_PLAINTEXT or SASL_SSL, with sasl.mechanism and sasl.jaas.config",
        )
        return
    reached.metadata = metadata
    yield ok(
        "connection",
        f"{where}: {len(metadata.brokers)} broker{'' if len(metadata.brokers) == 1 else 's'} in the cluster",
    )


def _tcp(host: str, port: int, seconds: float) -> Finding | None:
    where = f"{host}:{port}"
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as reason:
        return error(
            "dns", f"{host} has no address: {reason.args[-1]}", "correct the name, or add it to DNS or the hosts file"
        )
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except ConnectionRefusedError:
        return error(
            "refused", f"nothing listens on {where}", "start the broker, or correct the port; see its `listeners`"
        )
    except TimeoutError:
        return error(
            "unreachable",
            f"{where} does not answer within {seconds:.0f} s",
            "check firewalls, routes and security groups",
        )
    except OSError as reason:
        return error(
            "unreachable",
            f"{where}: {reason.strerror or reason}",
            "check the network between this machine and the broker",
        )
    return None


def _tls(host: str, port: int, settings: ClientSettings, seconds: float) -> Finding | None:
    from ottla.client.tls import tls_context
    from ottla.security.tls_level import weakness

    where = f"{host}:{port}"
    try:
        context = tls_context(settings.ssl)
    except BadSettings as reason:
        return error(
            "tls-store", str(reason), "correct ssl.truststore.location, ssl.keystore.location and their passwords"
        )
    try:
        with (
            socket.create_connection((host, port), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return _expiry(where, secure)
    except ssl.SSLCertVerificationError as reason:
        words = reason.verify_message or str(reason)
        if (advice := weakness(reason)) is not None:
            return error("tls-weak", f"{where}: {words}", advice)
        if reason.verify_code == 10:
            return error(
                "tls-expired",
                f"{where}: {words}",
                "renew the broker's certificate; if the certificate is new, correct the clock of this machine",
            )
        if reason.verify_code == 62 or "match" in words:
            return error(
                "tls-hostname",
                f"{where}: {words}",
                f"issue the broker a certificate with {host} in its names, or connect by a name that the "
                "certificate has",
            )
        return error(
            "tls-untrusted",
            f"{where}: {words}",
            "set ssl.truststore.location (type PEM) to the CA of the broker's certificate",
        )
    except ssl.SSLError as reason:
        if reason.reason in _NO_TLS:
            return error(
                "plaintext-listener",
                f"{where} does not use TLS",
                "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the TLS port",
            )
        if "CERTIFICATE_REQUIRED" in str(reason.reason) or "HANDSHAKE_FAILURE" in str(reason.reason):
            return error(
                "tls-client-certificate",
                f"{where}: {reason.reason}",
                "set ssl.keystore.location to a certificate that the broker trusts",
            )
        return error(
            "tls", f"{where}: {reason.reason or reason}", "compare ssl.enabled.protocols and ciphers of both sides"
        )
    except OSError as reason:
        return error(
            "plaintext-listener",
            f"{where} closes the connection during the TLS handshake: {reason}",
            "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the TLS port",
        )


def _expiry(where: str, secure: ssl.SSLSocket) -> Finding | None:
    certificate = secure.getpeercert() or {}
    end = certificate.get("notAfter")
    if isinstance(end, str) and (left := ssl.cert_time_to_seconds(end) - time.time()) < _EXPIRES_SOON_S:
        return warning("tls-expires-soon", f"{where}: its certificate ends in {left / 86400:.0f} days", "renew it")
    return None


def _sasl(where: str, words: str) -> Finding:
    if "not enabled" in words:
        return error("sasl-mechanism", f"{where}: {words}", "set sasl.mechanism to a mechanism that the broker enables")
    return error(
        "sasl-credentials",
        f"{where}: {words}",
        "correct username and password in sasl.jaas.config; `ottla user list` shows users",
    )


def _what_answers(host: str, port: int, words: str, seconds: float) -> Finding:
    """A listener accepted the connection and did not answer as a broker does: try TLS and HTTP."""
    where = f"{host}:{port}"
    if _speaks_tls(host, port, seconds):
        return error(
            "tls-listener", f"{where} uses TLS, and this client does not", "set security.protocol to SSL or SASL_SSL"
        )
    if _speaks_http(host, port, seconds):
        return error("not-kafka", f"{where} is a web server, not a broker", "use the broker's port, often 9092")
    return error(
        "not-kafka",
        f"{where}: {words}",
        "check that this port belongs to a broker and uses the configured security.protocol",
    )


def _speaks_tls(host: str, port: int, seconds: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=seconds) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as reason:
        return "CERTIFICATE_REQUIRED" in str(reason.reason)
    except OSError:
        return False


def _speaks_http(host: str, port: int, seconds: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout=seconds) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return plain.recv(16).startswith(b"HTTP/")
    except OSError:
        return False


def _check_advertised(
    metadata: MetadataResponse, bootstrap: tuple[tuple[str, int], ...], seconds: float
) -> Iterator[Finding]:
    remote = not all(_is_this_machine(host) for host, _ in bootstrap)
    fix = "set advertised.listeners of that broker to an address that clients can reach"
    for broker in metadata.brokers:
        where = f"broker {broker.node_id} advertises {broker.host}:{broker.port}"
        problem = _tcp(broker.host, broker.port, seconds)
        if remote and _is_this_machine(broker.host):
            yield error("advertised-loopback", f"{where}, which is this machine, not the broker's", fix)
        elif problem is not None and problem.name == "dns":
            yield error("advertised-dns", f"{where}, and that name has no address here", fix)
        elif problem is not None:
            yield error("advertised-unreachable", f"{where}: {problem.seen}", fix)


def _is_this_machine(host: str) -> bool:
    return host == "ip6-localhost" or is_loopback(host)
