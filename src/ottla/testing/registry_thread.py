"""The schema registry of a test broker, on a thread of this process."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.registry.settings import RegistrySettings

_START_S = 30.0


class RegistryThread:
    def __init__(self, bootstrap_servers: str, replication_factor: int) -> None:
        from ottla.registry.settings import RegistrySettings

        self._settings: RegistrySettings = RegistrySettings(
            bootstrap_servers=bootstrap_servers, port=0, alone=True, replication_factor=replication_factor
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """The URL of the registry."""
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="ottla-registry", daemon=True)
        self._thread.start()
        try:
            return started.result(_START_S)
        finally:
            gc.unfreeze()  # the registry freezes the objects of its process, which is the test's process here

    def stop(self) -> None:
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_S)
        self._thread = None

    def _run(self, started: Future[str]) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: Future[str]) -> None:
        from ottla.registry.server import RegistryServer

        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            server = RegistryServer(self._settings)
            await server.start()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the thread that waits in start()
            started.set_exception(error)
            return
        started.set_result(server.url)
        await self._stopping.wait()
        await server.stop()
