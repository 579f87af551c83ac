"""What the console passes on to librdkafka: the same settings serve the wire client and the readers of messages."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.librdkafka import security_settings

_SAME = ("client.rack", "client.dns.lookup", "socket.connection.setup.timeout.ms")


def librdkafka_settings(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    made = {"bootstrap.servers": bootstrap_servers, "client.id": "ottla-console"}
    made |= {name: properties[name] for name in _SAME if name in properties}
    return made | security_settings(properties)
