"""ListenerLimits and rules hold for an address in every spelling; failed logins count a whole IPv6 network."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from ottla.broker.login.failed_logins import MAX_UNDER_WAY, FailedLogins
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.runtime.buffers import BufferPool
from ottla.runtime.connection_rates import UNLIMITED, ConnectionRates
from ottla.runtime.listener import Listener, ListenerLimits, bind
from ottla.security.acls import Acl, Authorizer
from ottla.security.hosts import network_of, plain_address
from ottla.security.quotas import CONNECTION, QuotaTable

SPELLINGS = ["::1", "0:0:0:0:0:0:0:1", "0000:0000::0001", "[::1]"]


@pytest.mark.parametrize("host", SPELLINGS)
def test_an_address_has_one_spelling(host: str) -> None:
    assert plain_address(host) == "::1"


def test_mapped_addresses_interfaces_and_text() -> None:
    assert plain_address("::ffff:192.0.2.1") == plain_address("::FFFF:c000:0201") == "192.0.2.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("localhost") == "localhost"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:ffff:1") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("x" * 1000) == "x" * 64


def test_failed_logins_count_an_ipv6_network() -> None:
    """The owner of 2001:db8::/64 has 2^64 addresses: each was a new address without failures."""
    logins = FailedLogins()
    waits = [logins.failed(f"2001:db8::{number:x}", 100, 0) for number in range(MAX_UNDER_WAY)]
    assert waits[-1] > waits[0]
    assert not logins.allows("2001:db8::ffff")
    assert logins.allows("2001:db8:0:1::1")
    logins.refused("2001:db8::7")
    assert logins.allows("2001:db8::ffff")


@pytest.mark.parametrize("written", ["fe80::1", "fe80:0:0:0:0:0:0:1", "fe80::1%eth0"])
def test_a_rule_holds_for_a_link_local_address(written: str) -> None:
    authorizer = Authorizer()
    rule = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:eve", "*", Operation.READ, Permission.ALLOW)
    authorizer.replace(dict(enumerate([rule, rule._replace(host=written, permission=Permission.DENY)])))
    assert not authorizer.allowed("User:eve", "fe80::1", Operation.READ, ResourceType.TOPIC, "t")
    assert not authorizer.allowed("User:eve", "fe80::1%eth0", Operation.READ, ResourceType.TOPIC, "t")


@pytest.mark.parametrize("written", SPELLINGS[:3])
def test_a_quota_of_an_address_holds_in_every_spelling(written: str) -> None:
    table = QuotaTable({(("ip", written),): {CONNECTION: 2.0}, (("ip", None),): {CONNECTION: 100.0}})
    assert table.of_address("::1") == 2.0
    assert table.of_address("::2") == 100.0


def test_a_quota_of_localhost_is_one_of_its_address() -> None:
    assert QuotaTable({(("ip", "localhost"),): {CONNECTION: 2.0}}).of_address("127.0.0.1") == 2.0


def limits(per_ip: int, overrides: dict[str, int] | None = None) -> ListenerLimits:
    return ListenerLimits(
        max_connections=100,
        max_connections_per_ip=per_ip,
        idle_ms=600_000,
        max_frame=1000,
        per_ip_overrides=overrides,
    )


@pytest.mark.parametrize("written", SPELLINGS)
def test_an_override_holds_in_every_spelling(written: str) -> None:
    assert limits(100, {written: 3}).of_address("::1") == 3


def test_the_connections_of_an_address_count_on_all_listeners_and_over_both_families() -> None:
    """127.0.0.1 comes as ::ffff:127.0.0.1 to the second listener. Each listener counted for itself."""

    async def main() -> None:
        per_ip: Counter[str] = Counter()
        dispatcher: Any = None
        hosts = ("127.0.0.1", "")
        listeners = [
            Listener(host, bind(host, 0), dispatcher, BufferPool(), limits(3), per_ip=per_ip) for host in hosts
        ]
        for listener in listeners:
            listener.start()
        clients = [socket.create_connection(("127.0.0.1", listeners[number % 2].port)) for number in range(5)]
        for _ in range(1000):
            if per_ip.total() >= 3:
                break
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0)
        assert dict(per_ip) == {"127.0.0.1": 3}
        for client in clients:
            client.close()
        for listener in listeners:
            listener.stop()

    asyncio.run(main())


def test_an_ipv6_network_has_the_connections_of_one_client() -> None:
    """The owner of a network of 64 bits has 2^64 addresses, and each had a limit and a quota of its own."""
    network = [f"2001:db8:0:7::{number:x}" for number in range(1, 200)]
    counted = limits(3, {network[5]: 50})
    assert {counted.counted_as(host) for host in network if host != network[5]} == {"2001:db8:0:7::/64"}
    assert counted.counted_as(network[5]) == network[5], "an override is for its address alone"
    assert counted.counted_as("2001:db8:0:8::1") != counted.counted_as(network[0])
    assert counted.counted_as("192.0.2.1") == "192.0.2.1"
    table = QuotaTable({(("ip", network[5]),): {CONNECTION: 50.0}, (("ip", None),): {CONNECTION: 2.0}})
    rates = ConnectionRates(table.of_address, lambda: UNLIMITED, table.counted_as)
    refused = sum(rates.on_accepted(host, 0.0) > 0 for host in network)
    assert refused > 100
    assert rates.on_accepted(network[5], 0.0) == 0.0


def test_the_listener_counts_an_ipv6_network_as_one_client() -> None:
    """Each connection comes from a new address of one network."""

    async def main() -> None:
        per_ip: Counter[str] = Counter()
        dispatcher: Any = None
        listener = Listener("a", bind("127.0.0.1", 0), dispatcher, BufferPool(), limits(3), per_ip=per_ip)
        pairs = [socket.socketpair() for _ in range(5)]
        for number, (server, _) in enumerate(pairs):
            listener._accept(server, (f"2001:db8::{number:x}", 1000 + number))
        assert dict(per_ip) == {"2001:db8::/64": 3}
        assert len(listener) == 3
        for _, client in pairs:
            client.close()
        listener.stop()
        assert dict(per_ip) == {}

    asyncio.run(main())
