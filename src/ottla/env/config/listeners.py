"""Endpoints: `listeners`, `advertised.listeners` and the names around them, parsed and typed.

Listener names are upper case, as Kafka normalises them. A host of None means every interface; what to advertise then is
the runtime's decision, for it takes the machine's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT: Final = r"(?P<name>.*?)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)"
_MAX_PORT: Final = 0xFFFF


class Endpoint(NamedTuple):
    listener_name: str
    security_protocol: str
    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.listener_name}://{f'[{host}]' if ':' in host else host}:{self.port}"


class ListenerError(ValueError):
    """What is wrong with one of the listener settings, in Kafka's words."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def parse_map(name: str, text: str) -> dict[str, str]:
    """`key:value,...`; the key may hold colons itself."""
    pairs: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key, colon, value = entry.rpartition(":")
        if not colon:
            raise ListenerError(name, f"Error parsing configuration property '{name}': {entry} is not key:value")
        pairs[key.strip()] = value.strip()
    return pairs


def protocol_map(
    text: str, *, explicit: bool, listeners: Iterable[str], controller_names: Iterable[str]
) -> dict[str, str]:
    """Listener name -> security protocol. Without an explicit map, and without TLS or SASL anywhere, the controller's
    listeners are PLAINTEXT."""
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for listener, protocol in parse_map(name, text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ListenerError(name, f"Invalid security protocol `{protocol}` defined in {name}")
        protocols[listener.upper()] = protocol.upper()
    if not explicit:
        controllers = list(controller_names)
        used = {*controllers, *(listener_name(value) for value in listeners)}
        if used.isdisjoint(SECURITY_PROTOCOLS[1:]):
            protocols.update((controller, "PLAINTEXT") for controller in controllers if controller != "PLAINTEXT")
    return protocols


def listener_name(value: str) -> str:
    name, separator, _ = value.partition("://")
    if not separator:
        raise ListenerError("listeners", f"Unable to parse a listener name from {value}")
    return name.upper()


def parse_endpoints(
    name: str, values: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Endpoint, ...]:
    texts = list(values)
    shown = f"[{', '.join(texts)}]"
    try:
        endpoints = tuple(_parse_endpoint(name, text, protocols) for text in texts)
        if len({endpoint.listener_name for endpoint in endpoints}) != len(endpoints):
            raise ListenerError(name, f"Each listener must have a different name, listeners: {shown}")
        if distinct_ports:
            _check_ports(name, endpoints, shown)
    except ListenerError as error:
        raise ListenerError(name, f"Error creating broker listeners from '{shown}': {error}") from error
    return endpoints


def _parse_endpoint(name: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = re.fullmatch(_ENDPOINT, text.strip())
    if match is None:
        raise ListenerError(name, f"Unable to parse {text} to a broker endpoint")
    listener = match["name"].upper()
    if listener not in protocols:
        raise ListenerError(name, f"No security protocol defined for listener {listener}")
    port = int(match["port"])
    if not 0 <= port <= _MAX_PORT:
        raise ListenerError(name, f"{text} has no usable port; ports go from 0 (any free port) to {_MAX_PORT}")
    return Endpoint(listener, protocols[listener], match["host"] or None, port)


def _check_ports(name: str, endpoints: Iterable[Endpoint], shown: str) -> None:
    """One port twice only where one listener is bound to an IPv4 and the other to an IPv6 address."""
    by_port: dict[int, list[str | None]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        if len(hosts) == 1:
            continue
        versions = [_ip_version(host) for host in hosts]
        if not any(versions):
            raise ListenerError(name, f"Each listener must have a different port, listeners: {shown}")
        if sorted(versions) != [4, 6]:
            raise ListenerError(
                name,
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {shown}, port: {port}",
            )


def _ip_version(host: str | None) -> int:
    """4 or 6, or 0 for a name or for every interface."""
    import ipaddress  # rarely needed, and slow to load

    try:
        return ipaddress.ip_address(host or "").version
    except ValueError:
        return 0
