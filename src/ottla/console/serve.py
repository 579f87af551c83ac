"""Run the console: `ottla console`, or as a part of `ottla up`."""

from __future__ import annotations

import socket
from collections.abc import Callable

from ottla.console.app import make_app
from ottla.console.settings import ConsoleSettings

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


def serve(
    settings: ConsoleSettings,
    host: str,
    port: int,
    *,
    certificate: str = "",
    key: str = "",
    on_up: Callable[[int], None] | None = None,
) -> None:
    """Until it is stopped by a signal. `on_up` hears the port once it is bound."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started and on_up is not None:
                on_up(self.servers[0].sockets[0].getsockname()[1])

    Server(
        uvicorn.Config(
            make_app(settings),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            ssl_certfile=certificate or None,
            ssl_keyfile=key or None,
            server_header=False,
            limit_concurrency=500,
            timeout_graceful_shutdown=2,
        )
    ).run()
