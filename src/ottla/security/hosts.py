"""Host names and addresses as text. Nothing here resolves a name.

Limits and rules must not depend on how an address is spelled. IPv6 has many spellings of an address, and Java, whose
spelling stands in settings and ACLs for Apache Kafka, writes ::1 as 0:0:0:0:0:0:0:1. An IPv4 peer of a socket for both
families comes as ::ffff:192.0.2.1. A link-local address carries the name of an interface (fe80::1%eth0).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def bare_host(host: str) -> str:
    """Without port, brackets and the dot of the root, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        address, _, port = name[1:].partition("]")
        return address if port == "" or port.startswith(":") else name
    if name.count(":") == 1:
        name = name.partition(":")[0]
    return name.rstrip(".") if name != "." else name


def is_address(name: str) -> bool:
    """Whether a bare host is an IP address and no name."""
    address, zone, _ = name.partition("%")
    try:
        return ipaddress.ip_address(address).version == 6 or not zone  # only IPv6 has zones
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. An empty host stands for every address."""
    name = bare_host(host)
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name.partition("%")[0]).is_loopback)


@lru_cache(10_000)
def plain_address(host: str) -> str:
    """The shortest spelling, without the interface; IPv4 for a mapped address. Text that is no address is unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


@lru_cache(10_000)
def network_of(host: str) -> str:
    """The addresses of one owner: an IPv4 address, or the IPv6 network of 64 bits. Text that is no address is cut."""
    plain = plain_address(host)
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return plain[:64]
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return plain
