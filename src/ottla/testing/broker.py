"""Run a node on a thread of this process."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.env.config.load import load
from ottla.env.logging import configure_if_nobody_did
from ottla.server.formatting.storage import format_standalone, is_formatted
from ottla.server.node import Node
from ottla.server.run import new_event_loop

START_TIMEOUT_S = 30.0

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "ottla.busy.poll.us": "0",  # the test's own threads want the interpreter
}


class Broker:
    """A context manager. `directory` keeps the data between uses; without `directory`, the data are removed at the end.

    The broker logs warnings and errors only, to the standard error; `ottla.env.logging.configure` changes that. A
    broker that is still running stops when the interpreter ends. A forked child has no broker: there, `stop` does
    nothing.
    """

    def __init__(self, *, directory: str | Path | None = None, properties: Mapping[str, str] | None = None) -> None:
        if directory is not None and "," in str(directory):
            raise ValueError(f"log.dirs is a list, so a folder's name cannot have a comma: {directory}")
        self._temporary = directory is None
        self.directory = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="ottla-"))
        self._properties = {**_PROPERTIES, "log.dirs": str(self.directory / "data"), **(properties or {})}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._node: Node | None = None
        self._process = os.getpid()
        self._ended = False

    @property
    def bootstrap_servers(self) -> str:
        """What a client needs; only while the broker runs."""
        if self._node is None:
            raise RuntimeError("the broker is not running: use it as `with Broker() as broker:`")
        return self._node.bootstrap_servers

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError("the broker is not running")
        return self._node

    def start(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        started: Future[Node] = Future()
        configure_if_nobody_did("warning")
        self._process = os.getpid()
        self._loop = self._stopping = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, args=(started,), name="ottla-broker", daemon=True)
        self._thread.start()
        atexit.register(self.stop)
        try:
            self._node = started.result(START_TIMEOUT_S)
        finally:
            if self._node is None:  # it failed, or the caller was interrupted
                self.stop()
        return self

    def stop(self) -> None:
        """A clean shutdown; the data stay unless the folder is temporary."""
        if self._process != os.getpid():
            return
        atexit.unregister(self.stop)
        thread, self._thread = self._thread, None
        self._node = None
        self._ended = True
        if thread is not None:
            if self._loop is not None and self._stopping is not None:
                with suppress(RuntimeError):  # the loop is closed: it never started
                    self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join(START_TIMEOUT_S)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, started: Future[Node]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[Node]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._ended:  # `stop` was called before there was a loop
            self._stopping.set()
        try:
            config = load(self._properties, strict=True)  # a typing mistake in a test is an error, not a warning
            node = Node(config)
            node.bind()
            if not is_formatted(config):
                format_standalone(config, node.ports)
            await node.start()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the thread that waits in start()
            started.set_exception(error)
            return
        started.set_result(node)
        await self._stopping.wait()
        await node.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
