"""A node's HTTP server: metrics, health, readiness, lineage. Runs only if `ottla.http.listener` has an address."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.controller_server import ControllerServer
from ottla.env.config.broker.config import BrokerConfig
from ottla.runtime.descriptors import SocketBudget
from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.runtime.listener import Listener
from ottla.security.hosts import is_loopback
from ottla.security.web import WebAccess, WebAccessError
from ottla.security.web_hosts import WebHosts, host_names
from ottla.server.errors import StartupError
from ottla.system.processes import resident_bytes

if TYPE_CHECKING:
    from ottla.runtime.loop_watch import LoopDelays
    from ottla.server.monitoring.group_lag import GroupLag


_BREATH = 256
"""Flows of the lineage between two turns of the loop."""
_NOT_YET = HttpAnswer("starting\n", status=503)
_NO_LOGIN = (
    "lineage names clients and principals, and this listener requires no login: "
    "set ottla.http.users.file, or set ottla.http.listener to a loopback address\n"
)


class Monitoring:
    """Starts before the node serves clients, to report that the node is not ready. Stops after the node has handed
    over its partitions.
    """

    def __init__(
        self,
        sock: socket.socket,
        listeners: Sequence[Listener],
        is_active_controller: Callable[[], bool],
        config: BrokerConfig,
        budget: SocketBudget | None = None,
        delays: LoopDelays | None = None,
    ) -> None:
        """Raises StartupError for a users file or a certificate that cannot be used."""
        self._told_of: Broker | ControllerServer | None = None
        self._stopping = False
        self._listeners = listeners
        self._is_active_controller = is_active_controller
        self._lag: GroupLag | None = None
        self._delays = delays
        host = config.ottla_http_listener.rpartition(":")[0]
        try:
            access = _access(config)
            self._server = HttpServer(
                sock,
                {
                    "/metrics": self._metrics,
                    "/healthz": self._healthy,
                    "/readyz": self._ready,
                    "/lineage": self._lineage,
                },
                access=access,
                hosts=_hosts(config, host),
                max_connections=config.ottla_http_max_connections,
                request_s=config.ottla_http_request_timeout_ms / 1000,
                budget=budget,
            )
        except WebAccessError as error:
            raise StartupError(f"ottla.http.listener: {error}") from error
        self._names_principals = not access.open or is_loopback(host)

    async def start(self) -> None:
        await self._server.start()

    def serving(self, server: Broker | ControllerServer) -> None:
        """The node accepts clients from now on."""
        self._told_of = server

    def stopping(self) -> None:
        """Report the node as not ready from now on, so that load balancers use other nodes."""
        self._stopping = True

    def stop(self) -> None:
        self._server.stop()

    async def _metrics(self) -> HttpAnswer:
        from ottla.server.monitoring.exposition import CONTENT_TYPE, expose
        from ottla.server.monitoring.group_lag import GroupLag

        server = self._told_of
        if server is None:
            return _NOT_YET
        if self._lag is None and isinstance(server, Broker):
            self._lag = GroupLag(server)
        lags = await self._lag.now() if self._lag is not None else []
        text = await expose(
            server,
            self._listeners,
            active_controller=self._is_active_controller(),
            resident_bytes=await resident_bytes(),
            lags=lags,
            delays=self._delays,
        )
        return HttpAnswer(text, CONTENT_TYPE)

    def _healthy(self) -> HttpAnswer:
        return HttpAnswer("ok\n")

    def _ready(self) -> HttpAnswer:
        """Ready: the node accepts clients, its broker is registered and not fenced, and the node is not stopping."""
        if self._stopping:
            return HttpAnswer("stopping\n", status=503)
        if self._told_of is None:
            return _NOT_YET
        if isinstance(self._told_of, Broker):
            registration = self._told_of.image.brokers.get(self._told_of.node_id)
            if registration is None or registration.fenced:
                return HttpAnswer("the broker is not registered, or fenced\n", status=503)
        return HttpAnswer("ready\n")

    async def _lineage(self) -> HttpAnswer:
        if not self._names_principals:
            return HttpAnswer(_NO_LOGIN, status=403)
        if self._told_of is None:
            return _NOT_YET
        metrics = self._told_of.metrics
        parts = []
        for direction, flows in (metrics.lineage() if metrics is not None else {}).items():
            rows = []
            for flow in flows:
                rows.append(json.dumps(flow))
                if len(rows) % _BREATH == 0:
                    await asyncio.sleep(0)
            parts.append(f"{json.dumps(direction)}: [{', '.join(rows)}]")
        return HttpAnswer(f"{{{', '.join(parts)}}}", "application/json")


def _access(config: BrokerConfig) -> WebAccess:
    return WebAccess.from_options(
        users_file=config.ottla_http_users_file,
        tls_certificate=config.ottla_http_tls_certificate,
        tls_key=config.ottla_http_tls_key,
        tls_client_ca=config.ottla_http_tls_client_ca,
    )


def _hosts(config: BrokerConfig, host: str) -> WebHosts:
    advertised = [endpoint.host for endpoint in config.endpoints.advertised if endpoint.host]
    names = host_names(host, *advertised, socket.gethostname())
    return WebHosts((*names, *config.ottla_http_allowed_hosts), setting="ottla.http.allowed.hosts")
