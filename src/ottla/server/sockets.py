"""The listening sockets of a node. They are bound before anything on disk is touched."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.listeners import Endpoint
from ottla.runtime.listener import bind as bind_here
from ottla.server.errors import StartupError


class Sockets:
    def __init__(self, bind: Callable[[str, int], socket.socket] = bind_here) -> None:
        self._bind = bind
        self.by_listener: dict[str, socket.socket] = {}
        self.ports: dict[str, int] = {}
        """Listener name -> bound port (useful if the configured port is 0). A forked child has the numbers too."""
        self.http: socket.socket | None = None
        """The socket of `ottla.http.listener`."""

    def bind(self, config: BrokerConfig) -> None:
        """Bind the ports that are not bound yet. Raises StartupError if a port is in use, and then keeps no port."""
        for endpoint in config.endpoints.listeners:
            if endpoint.listener_name in self.by_listener:
                continue
            try:
                self.by_listener[endpoint.listener_name] = self._bind(endpoint.host or "", endpoint.port)
            except OSError as error:
                self.close()
                raise StartupError(f"cannot listen on {endpoint}: {_reason(error)}") from error
        self.ports = {name: sock.getsockname()[1] for name, sock in self.by_listener.items()}
        if config.ottla_http_listener and self.http is None:
            self._refuse_open_http(config)
            self._bind_http(config.ottla_http_listener)

    def _refuse_open_http(self, config: BrokerConfig) -> None:
        from ottla.security.exposure import SETTING, open_refusal
        from ottla.security.hosts import is_loopback

        host = config.ottla_http_listener.rpartition(":")[0]
        asks = config.ottla_http_users_file or config.ottla_http_tls_client_ca
        if not (asks or config.ottla_allow_open or is_loopback(host)):
            self.close()
            allow = f"{SETTING}=true"
            raise StartupError(open_refusal("ottla.http.listener", host, close="ottla.http.users.file", allow=allow))

    def _bind_http(self, listener: str) -> None:
        host, _, port = listener.rpartition(":")
        if not port.isdigit():
            self.close()
            raise StartupError(f"ottla.http.listener: {listener!r} is not HOST:PORT")
        try:
            self.http = self._bind(host.strip("[]"), int(port))
        except OSError as error:
            self.close()
            raise StartupError(f"cannot listen on ottla.http.listener {listener}: {_reason(error)}") from error

    def close(self) -> None:
        if self.http is not None:
            self.http.close()
            self.http = None
        for sock in self.by_listener.values():
            sock.close()
        self.by_listener.clear()
        self.ports.clear()

    def advertised(self, endpoints: tuple[Endpoint, ...]) -> list[Endpoint]:
        """With the ports that were bound and a name for the wildcard address."""
        return [
            endpoint._replace(
                host=endpoint.host or socket.gethostname(), port=endpoint.port or self.ports[endpoint.listener_name]
            )
            for endpoint in endpoints
        ]


def _reason(error: OSError) -> str:
    """The system's words. Python's own text of a failed bind repeats the address."""
    return os.strerror(error.errno) if error.errno else str(error)
