"""Run the console: `ottla console`, or as a part of `ottla up`."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from ottla.console.app import make_app
from ottla.console.errors import ConsoleError
from ottla.console.settings import ConsoleSettings


def serve(
    settings: ConsoleSettings,
    host: str,
    port: int,
    *,
    on_up: Callable[[int], None] | None = None,
    until_stdin_closes: bool = False,
) -> None:
    """Serves until a signal. Calls `on_up` with the port once it listens. Raises ConsoleError if the port is in use."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started and on_up is not None:
                on_up(self.servers[0].sockets[0].getsockname()[1])

    server = Server(
        uvicorn.Config(
            make_app(settings),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            **settings.web_access().uvicorn_options(),
        )
    )
    with _bound(host, port) as listening:
        if until_stdin_closes:
            threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
        server.run(sockets=[listening])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio sets TCP_NODELAY only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise ConsoleError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener


def _end_with_stdin(server: Any) -> None:
    """The process that started this one holds our standard input; when it is gone, so are we."""
    while os.read(0, 4096):  # not by sys.stdin: a read that waits for its lock at the interpreter's end aborts it
        pass
    server.should_exit = True
