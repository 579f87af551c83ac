"""What a node tells over HTTP: metrics, health, readiness, lineage. Only where `ottla.http.listener` says an address."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.controller_server import ControllerServer
from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.runtime.listener import Listener
from ottla.system.processes import resident_bytes

if TYPE_CHECKING:
    from ottla.server.group_lag import GroupLag


_NOT_YET = HttpAnswer("starting\n", status=503)


class Monitoring:
    """Up before the node serves, so that it can say that it does not yet, and until it has handed its partitions over."""

    def __init__(
        self, sock: socket.socket, listeners: Sequence[Listener], is_active_controller: Callable[[], bool]
    ) -> None:
        self._told_of: Broker | ControllerServer | None = None
        self._stopping = False
        self._listeners = listeners
        self._is_active_controller = is_active_controller
        self._lag: GroupLag | None = None
        self._server = HttpServer(
            sock,
            {"/metrics": self._metrics, "/healthz": self._healthy, "/readyz": self._ready, "/lineage": self._lineage},
        )

    async def start(self) -> None:
        await self._server.start()

    def serving(self, server: Broker | ControllerServer) -> None:
        """Clients have been let in."""
        self._told_of = server

    def stopping(self) -> None:
        """From now on not ready: whoever balances load should look elsewhere."""
        self._stopping = True

    def stop(self) -> None:
        self._server.stop()

    async def _metrics(self) -> HttpAnswer:
        from ottla.server.exposition import CONTENT_TYPE, expose
        from ottla.server.group_lag import GroupLag

        server = self._told_of
        if server is None:
            return _NOT_YET
        if self._lag is None and isinstance(server, Broker):
            self._lag = GroupLag(server)
        lags = await self._lag.now() if self._lag is not None else []
        text = expose(
            server,
            self._listeners,
            active_controller=self._is_active_controller(),
            resident_bytes=await resident_bytes(),
            lags=lags,
        )
        return HttpAnswer(text, CONTENT_TYPE)

    def _healthy(self) -> HttpAnswer:
        return HttpAnswer("ok\n")

    def _ready(self) -> HttpAnswer:
        """Ready: clients are let in, the broker is registered and not fenced (they find it in the metadata), no stop."""
        if self._stopping:
            return HttpAnswer("stopping\n", status=503)
        if self._told_of is None:
            return _NOT_YET
        if isinstance(self._told_of, Broker):
            registration = self._told_of.image.brokers.get(self._told_of.node_id)
            if registration is None or registration.fenced:
                return HttpAnswer("not registered, or fenced\n", status=503)
        return HttpAnswer("ready\n")

    def _lineage(self) -> HttpAnswer:
        if self._told_of is None:
            return _NOT_YET
        metrics = self._told_of.metrics
        return HttpAnswer(json.dumps(metrics.lineage() if metrics is not None else {}), "application/json")
