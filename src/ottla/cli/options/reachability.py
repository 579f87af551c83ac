"""Whether anything listens at the bootstrap addresses of a verb, and why a cluster does not answer.

A client retries until its time-out, which suits a program and is long for a person who mistyped a port. So a verb first
waits a few seconds until an address accepts a connection, and then reports what is wrong. These seconds are long enough
for a log that was started on the line before. If a listener is no broker, the doctor's checks find out what it is.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.client.errors import AuthenticationFailed, CallTimeout, ConnectionFailed, UnsupportedVersion
from ottla.client.settings import parse_addresses

if TYPE_CHECKING:
    from ottla.cli.options.profiles import Profile
    from ottla.client.cluster import Cluster

PATIENCE_S = 5.0
_PAUSE_S = 0.2
_CONNECT_S = 3.0
_DIAGNOSIS_S = 3.0
_NO_ANSWER = ("unreachable", "not-kafka")
"""Findings of the doctor when a broker does not answer in time."""
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def wait_for_listener(bootstrap: str, seconds: float = PATIENCE_S) -> None:
    """Raises ConnectionFailed if every address refuses or does not resolve; a slow address is the client's work."""
    deadline = time.monotonic() + seconds
    while refused := refusals(bootstrap):
        if time.monotonic() + _PAUSE_S >= deadline:
            raise ConnectionFailed(
                f"{'; '.join(refused)}: start the log, or run `ottla doctor` to check the connection"
            )
        time.sleep(_PAUSE_S)


def refusals(bootstrap: str) -> list[str]:
    """Why each address refuses a connection; an empty list if an address accepts one or is only slow."""
    refused: list[str] = []
    for host, port in parse_addresses(bootstrap):
        reason = _refusal(host, port)
        if reason is None:
            return []
        refused.append(reason)
    return refused


def _refusal(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except ConnectionRefusedError:
        return f"nothing listens on {host}:{port}"
    except socket.gaierror as reason:
        return f"{host} has no address: {reason.args[-1]}"
    except OSError:
        return None
    return None


def logs_in(where: Profile) -> bool:
    return where.properties.get("security.protocol", "").upper().startswith("SASL_")


def check_login(where: Profile) -> None:
    """Raises AuthenticationFailed if the cluster refuses the password: librdkafka repeats such a login for ever."""
    if _has_password(where):
        with open_cluster(where) as cluster:
            cluster.any(time.monotonic() + PATIENCE_S)


def refuse_wrong_login(where: Profile) -> None:
    """As `check_login`, for a program that may start before its brokers: without an answer nothing is refused."""
    if not _has_password(where) or refusals(where.bootstrap):
        return
    with contextlib.suppress(ConnectionFailed, CallTimeout):
        check_login(where)


def _has_password(where: Profile) -> bool:
    """In Java's names; a login in librdkafka's names is not tried."""
    by_password = where.properties.get("sasl.mechanism") in _PASSWORD_MECHANISMS
    return logs_in(where) and by_password and "sasl.jaas.config" in where.properties


@contextmanager
def open_cluster(where: Profile, timeout_ms: str | None = None, client_id: str = "ottla") -> Iterator[Cluster]:
    """A client of the cluster; the error of an unanswered call is what the doctor finds."""
    from ottla.client.cluster import Cluster
    from ottla.client.settings import client_settings

    limits = {} if timeout_ms is None else {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    settings = client_settings(where.bootstrap, {**limits, **where.properties}, client_id=client_id)
    wait_for_listener(where.bootstrap)
    try:
        with Cluster(settings) as connected:
            yield connected
    except AuthenticationFailed as reason:
        raise AuthenticationFailed(diagnosed(where, str(reason), has_answered=True)) from reason
    except (CallTimeout, ConnectionFailed, UnsupportedVersion) as reason:
        raise type(reason)(diagnosed(where, str(reason))) from reason


def diagnosed(where: Profile, words: str, *, has_answered: bool = False) -> str:
    """What the doctor finds on the way to the cluster, or `words` where it finds nothing.

    A broker that has answered may be too slow for the doctor: its refusal counts, not the doctor's time-out.
    """
    from ottla.cli.doctor.connection import Reached, check_connection

    for finding in check_connection(where, Reached(), _DIAGNOSIS_S):
        if finding.level == "error" and not (has_answered and finding.name in _NO_ANSWER):
            return f"{finding.seen}: {finding.fix}"
    return words
