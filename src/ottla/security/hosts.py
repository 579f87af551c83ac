"""Host names and addresses as text. Nothing here resolves a name."""

from __future__ import annotations

import ipaddress

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
