"""What a node tells over HTTP: metrics, health, readiness, lineage. Only where `ottla.http.listener` says an address."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence

from ottla.broker.broker import Broker
from ottla.broker.controller_server import ControllerServer
from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.runtime.listener import Listener


class Monitoring:
    def __init__(
        self,
        sock: socket.socket,
        server: Broker | ControllerServer,
        listeners: Sequence[Listener],
        is_active_controller: Callable[[], bool],
    ) -> None:
        self._told_of = server
        self._listeners = listeners
        self._is_active_controller = is_active_controller
        self._server = HttpServer(
            sock,
            {"/metrics": self._metrics, "/healthz": self._healthy, "/readyz": self._ready, "/lineage": self._lineage},
        )

    async def start(self) -> None:
        await self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def _metrics(self) -> HttpAnswer:
        from ottla.server.exposition import CONTENT_TYPE, expose

        text = expose(self._told_of, self._listeners, active_controller=self._is_active_controller())
        return HttpAnswer(text, CONTENT_TYPE)

    def _healthy(self) -> HttpAnswer:
        return HttpAnswer("ok\n")

    def _ready(self) -> HttpAnswer:
        """Ready: a broker is registered and not fenced, so that clients find it in the metadata."""
        if isinstance(self._told_of, Broker):
            registration = self._told_of.image.brokers.get(self._told_of.node_id)
            if registration is None or registration.fenced:
                return HttpAnswer("not registered, or fenced\n", status=503)
        return HttpAnswer("ready\n")

    def _lineage(self) -> HttpAnswer:
        metrics = self._told_of.metrics
        return HttpAnswer(json.dumps(metrics.lineage() if metrics is not None else {}), "application/json")
