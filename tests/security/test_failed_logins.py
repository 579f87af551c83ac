"""Guessing passwords takes time, on one connection and on many from the same address."""

from __future__ import annotations

import time

import pytest

from ottla.broker.login.failed_logins import DOUBLES_AFTER, MAX_ADDRESSES, MAX_FACTOR, MAX_UNDER_WAY, FailedLogins
from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.testing import Broker
from tests.security.secured import PASSWORD, USERS, plain_users
from tests.security.session import Closed, Session


def test_the_wait_grows_with_the_failures_of_an_address() -> None:
    logins = FailedLogins()
    waits = [logins.failed("a", 100, 0) for _ in range(200)]
    assert waits[0] == 100
    assert waits[DOUBLES_AFTER] == 200
    assert waits[-1] == 100 * MAX_FACTOR
    assert logins.failed("b", 100, 0) == 100
    for _ in range(200):
        logins.refused("a")
    assert logins.failed("a", 100, 3_600_000) < 100 * MAX_FACTOR + 1
    assert logins.failed("c", 0, 0) == 0
    assert logins.allows("c")


def test_an_address_with_many_refusals_under_way_is_not_heard() -> None:
    logins = FailedLogins()
    for _ in range(MAX_UNDER_WAY):
        assert logins.allows("a")
        logins.failed("a", 100, 0)
    assert not logins.allows("a")
    assert logins.allows("b")
    logins.refused("a")
    assert logins.allows("a")


def test_addresses_are_bounded() -> None:
    logins = FailedLogins()
    for number in range(MAX_ADDRESSES + 100):
        logins.failed(str(number), 100, 0)
    assert len(logins._addresses) == MAX_ADDRESSES


def test_many_connections_guess_no_faster() -> None:
    """All refusals wait; a connection beyond them is closed without a look at its password, even the right one."""
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_users(USERS),
        "connection.failed.authentication.delay.ms": "600000",
        "connections.max.idle.ms": "900000",
    }
    with Broker(properties=properties) as broker:
        port = broker.node.ports["SASL_PLAINTEXT"]
        guessing = [Session(port, timeout=60) for _ in range(MAX_UNDER_WAY)]
        for session in guessing:
            session.handshake("PLAIN")
            session.send(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
        logins = next(one for one in broker.node._listeners if one.name == "SASL_PLAINTEXT")._dispatcher.failed_logins
        deadline = time.monotonic() + 60
        while logins.allows("127.0.0.1") and time.monotonic() < deadline:
            time.sleep(0.01)
        with Session(port, timeout=60) as late:
            late.handshake("PLAIN")
            with pytest.raises(Closed):
                late.authenticate(f"\0alice\0{PASSWORD}".encode())
        for session in guessing:
            session.close()
