"""A node of a test broker: on a thread of this process, with its own loop, started and stopped in every way a test needs."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ottla.controller.format import FormatRequest
from ottla.env.config.load import load
from ottla.runtime.clock import SystemClock
from ottla.runtime.listener import bind
from ottla.server.formatting.storage import format_standalone, is_formatted, open_storage, run_format
from ottla.server.machine import NodeMachine, real_machine
from ottla.server.node import Node
from ottla.server.run import new_event_loop
from ottla.testing.faults import FaultyDispatcher, RequestFaults
from ottla.testing.forks import OpenSockets
from ottla.testing.full_disk import DiskSpace, FillableStorage

if TYPE_CHECKING:
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Storage
    from ottla.testing.clock import BrokerClock

START_TIMEOUT_S = 120.0
"""A loaded machine elects a controller late."""
STOP_TIMEOUT_S = 30.0


class NodeThread:
    """`start`, `stop` and `kill` may be called again and again. The node keeps its ports and its folder."""

    def __init__(
        self,
        node_id: int,
        properties: Mapping[str, str],
        *,
        cluster_id: str,
        clock: BrokerClock,
        faults: RequestFaults,
        sockets: Iterable[socket.socket] = (),
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        """`sockets` are bound already: the node listens on them instead of binding their ports. Without `cluster_id`, the
        node is a cluster by itself.
        """
        self.node_id = node_id
        self.space = DiskSpace()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._properties = dict(properties)
        self._cluster_id = cluster_id
        self._clock = clock
        self._faults = faults
        self._open = OpenSockets()
        self._sockets = {sock.getsockname()[1]: self._open.add(sock) for sock in sockets}
        self._new_loop = new_loop
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._node: Node | None = None
        self._resume: threading.Event | None = None
        self._clean = True
        self._ended = False

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError(f"node {self.node_id} is not running")
        return self._node

    @property
    def is_running(self) -> bool:
        return self._node is not None

    @property
    def is_paused(self) -> bool:
        return self._resume is not None

    def has_topic(self, topic: str) -> bool:
        """Whether the node has the topic with a leader for each partition. A node that does not run needs no topic."""
        broker = None if self._node is None or self._resume is not None else self._node.broker
        if broker is None:
            return True
        image = broker.image.topics_by_name.get(topic)
        return image is not None and all(partition.leader >= 0 for partition in image.partitions.values())

    # Start and stop

    def begin(self) -> Future[Node]:
        """Start the thread. The future has the node when the node serves."""
        if self._thread is not None:
            raise RuntimeError(f"node {self.node_id} is already running")
        started: Future[Node] = Future()
        self.loop = self._stopping = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, args=(started,), name="ottla-broker", daemon=True)
        self._thread.start()
        return started

    def start(self) -> None:
        self.wait_for(self.begin())

    def wait_for(self, started: Future[Node]) -> None:
        """Wait for the future of `begin`. A failed or interrupted start leaves no thread behind."""
        try:
            self._node = started.result(START_TIMEOUT_S)
            self._pin_ports(self._node)
        finally:
            if self._node is None:
                self.stop()

    def end_soon(self, *, clean: bool = True) -> None:
        """Ask the node to stop, without waiting: the nodes of a cluster stop together."""
        self._clean = clean
        self.resume()
        self._ended = True
        if self.loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # the loop is closed: it never started, or has ended
                self.loop.call_soon_threadsafe(self._stopping.set)

    def stop(self, *, clean: bool = True) -> None:
        """Without `clean`: no handover, no markers of a clean end. What was written stays written."""
        thread, self._thread = self._thread, None
        self._node = None
        self.end_soon(clean=clean)
        if thread is not None:
            thread.join(STOP_TIMEOUT_S)
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    def _pin_ports(self, node: Node) -> None:
        """A restarted node keeps the ports that it had."""
        config, ports = node.config, node.ports
        endpoints = [endpoint._replace(port=ports[endpoint.listener_name]) for endpoint in config.endpoints.listeners]
        self._properties["listeners"] = ",".join(map(str, endpoints))

    def pause(self) -> None:
        """Stop the thread of the node, as SIGSTOP stops a process: connections stay open and get no answer. Returns when the
        thread stands still.
        """
        if self.loop is None or self._node is None:
            raise RuntimeError(f"node {self.node_id} is not running")
        if self._resume is not None:
            return
        self._resume, standing = threading.Event(), threading.Event()
        self.loop.call_soon_threadsafe(_stand_still, standing, self._resume)
        self._clock.stand_still(self.loop)
        if not standing.wait(STOP_TIMEOUT_S):
            raise TimeoutError(f"node {self.node_id} did not stand still in {STOP_TIMEOUT_S:g} s")

    def resume(self) -> None:
        if self._resume is not None:
            self._resume.set()
            self._resume = None
            self._clock.go_on(self.loop)

    # On the thread

    def _run(self, started: Future[Node]) -> None:
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[Node]) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._ended:  # `stop` was called before there was a loop
            self._stopping.set()
        try:
            config = load(self._properties, strict=True)  # a typing mistake in a test is an error, not a warning
            node = Node(config, self.machine())
            node.bind()
            if not is_formatted(config):
                self._format(config, node)
            await self._start_unless_stopped(node)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the thread that waits in start()
            started.set_exception(error)
            return
        started.set_result(node)
        await self._stopping.wait()
        await node.stop(clean=self._clean)

    async def _start_unless_stopped(self, node: Node) -> None:
        """A node that waits for its quorum must end too."""
        if self._stopping is None:
            return
        starting, stopped = asyncio.ensure_future(node.start()), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            raise InterruptedError(f"node {self.node_id} was stopped while it started")
        stopped.cancel()
        starting.result()

    def _format(self, config: BrokerConfig, node: Node) -> None:
        if not self._cluster_id:
            format_standalone(config, node.ports)
            return
        request = FormatRequest(
            cluster_id=self._cluster_id,
            node_id=config.node_id,
            log_dirs=list(config.data_dirs),
            metadata_log_dir=config.metadata_log_dir,
        )
        run_format(config, request)

    def machine(self) -> NodeMachine:
        """The real machine, but for the parts by which a test moves time and injects faults."""
        real = real_machine()
        return replace(
            real,
            clock=self._clock,
            liveness=SystemClock(),
            timers=self._clock.timers,
            bind=self._bind,
            watch_hangups=lambda loop: self._open.watch(real.watch_hangups(loop)),
            open_storage=self._open_storage,
            dispatcher=partial(FaultyDispatcher, faults=self._faults),
        )

    def _bind(self, host: str, port: int) -> socket.socket:
        return self._sockets.pop(port, None) or self._open.add(bind(host, port))

    def _open_storage(self, config: BrokerConfig) -> Storage:
        storage = open_storage(config)
        return storage if config.encrypts_at_rest else cast("Storage", FillableStorage(storage, self.space))


def _stand_still(standing: threading.Event, resume: threading.Event) -> None:
    standing.set()
    resume.wait()
