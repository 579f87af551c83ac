"""Open surfaces: an HTTP server without a login listens on loopback only, unless the operator allows more.

Console, registry, `ottla pipeline serve`, a node's HTTP server and `ottla up` refuse to start without a login on any
address other than loopback. `--allow-open` (`OTTLA_ALLOW_OPEN=1`) or `ottla.allow.open=true` allows it: in a closed
network, or behind a proxy with a login. A broker's PLAINTEXT listener is not refused, because Kafka's property files
have one everywhere and must start unchanged. The node logs a warning at start, and `ottla doctor --security` lists the
listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.security.hosts import is_loopback

if TYPE_CHECKING:
    from ottla.env.config.broker.config import BrokerConfig

FLAG = "--allow-open"
ENVIRONMENT = "OTTLA_ALLOW_OPEN"
SETTING = "ottla.allow.open"


def open_refusal(surface: str, host: str, *, close: str, allow: str = FLAG) -> str:
    """The error message: what is wrong and what to do. `close` is the option or setting that requires a login."""
    where = host or "every address"
    return (
        f"{surface} would listen on {where} without a login: every client that reaches this machine could use it. "
        f"Set {close}, or listen on 127.0.0.1, or add {allow} if the network is closed"
    )


def open_listeners(config: BrokerConfig) -> list[str]:
    """Listeners of a node with no TLS, no login and no ACLs: every peer on the network may do everything."""
    if config.authorizer_class_name:
        return []
    return [
        str(endpoint)
        for endpoint in config.endpoints.listeners
        if endpoint.security_protocol == "PLAINTEXT" and not is_loopback(endpoint.host or "")
    ]
