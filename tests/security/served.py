"""An ASGI application behind a real uvicorn, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def served(app: Any, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None, **options: Any) -> Iterator[int]:
    """The port."""
    up = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            up.set()

    running = Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", **options))

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(running.serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert up.wait(60)
    try:
        yield running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(60)
