"""What a node tells over HTTP: metrics, health, readiness, lineage. Only where `ottla.http.listener` says an address."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence

from ottla.broker.broker import Broker
from ottla.runtime.http import HttpAnswer, HttpServer
from ottla.runtime.listener import Listener, bind
from ottla.server.errors import StartupError


def bind_http(listener: str) -> socket.socket:
    """StartupError when the address is none or in use."""
    host, _, port = listener.rpartition(":")
    if not port.isdigit():
        raise StartupError(f"ottla.http.listener: {listener!r} is not HOST:PORT")
    try:
        return bind(host.strip("[]"), int(port))
    except OSError as error:
        raise StartupError(f"cannot listen on ottla.http.listener {listener}: {error.strerror or error}") from error


class Monitoring:
    def __init__(
        self,
        sock: socket.socket,
        broker: Broker,
        listeners: Sequence[Listener],
        is_active_controller: Callable[[], bool],
    ) -> None:
        self._broker = broker
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

        text = expose(self._broker, self._listeners, active_controller=self._is_active_controller())
        return HttpAnswer(text, CONTENT_TYPE)

    def _healthy(self) -> HttpAnswer:
        return HttpAnswer("ok\n")

    def _ready(self) -> HttpAnswer:
        """Ready: registered and not fenced, so that clients find this node in the metadata."""
        registration = self._broker.image.brokers.get(self._broker.node_id)
        if registration is None or registration.fenced or not self._listeners:
            return HttpAnswer("not registered, or fenced\n", status=503)
        return HttpAnswer("ready\n")

    def _lineage(self) -> HttpAnswer:
        metrics = self._broker.metrics
        return HttpAnswer(json.dumps(metrics.lineage() if metrics is not None else {}), "application/json")
