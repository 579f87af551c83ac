"""An event loop in virtual time: the asyncio code of a node runs unchanged, one loop for each life of a node.

A turn runs the callbacks that are ready, in the order in which they became ready. Work for threads (`run_in_executor`)
ends after a while, as one event: its effect counts from that moment. A paused host runs no callback. A dead loop never
runs a callback again. It keeps its tasks, so that the collector does not run the cleanup code of a killed process.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.events import _set_running_loop  # it is there for event loops such as this
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.env.logging import get_logger
from ottla.simulation.faulty_disk import DiskHang
from ottla.simulation.streams import FakeTransport

if TYPE_CHECKING:
    from ottla.simulation.streams import StreamNetwork
    from ottla.simulation.world import Event, World

log = get_logger(__name__)

_CLOSE_ATTEMPTS = 100
"""A coroutine whose cleanup waits for something has to be closed once for each wait."""


class LoopHost(Protocol):
    """The machine that a loop runs on."""

    node_id: int
    touched: bool
    paused_until: float
    flush_ms: tuple[float, float]
    in_thread: bool
    """Whether the code that runs now is work of a thread."""

    def after_turn(self) -> None:
        """Called when callbacks have run."""
        ...


class SimulatedHandle:
    __slots__ = ("args", "callback", "context", "event", "is_cancelled", "when_s")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.event: Event | None = None
        self.is_cancelled = False
        self.when_s = 0.0

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.event is not None:
            self.event.cancel()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, world: World, host: LoopHost, network: StreamNetwork) -> None:
        self._world = world
        self._host = host
        self.network = network
        self.address = f"10.0.0.{host.node_id}"
        self.dead = False
        self._ready: deque[SimulatedHandle] = deque()
        self._scheduled = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 64

    @property
    def host(self) -> LoopHost:
        return self._host

    # Callbacks

    def call_soon(  # type: ignore[override]  # handles of its own, as uvloop has them
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        handle = SimulatedHandle(callback, args, context)
        self._ready.append(handle)
        if not self._scheduled and not self.dead:
            self._scheduled = True
            self._world.call_later(0.0, self._turn)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there are no threads

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        handle = SimulatedHandle(callback, args, context)
        handle.when_s = self.time() + delay
        if not self.dead:
            handle.event = self._world.call_later(delay * 1000, lambda: self._due(handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def time(self) -> float:
        return self._world.now_ms / 1000

    def _due(self, handle: SimulatedHandle) -> None:
        if not self.dead:
            self._ready.append(handle)
            if not self._scheduled:
                self._turn()

    def _turn(self) -> None:
        self._scheduled = False
        if self.dead:
            return
        pause_ms = self._host.paused_until - self._world.now_ms
        if pause_ms > 0:
            self._scheduled = True
            self._world.call_later(pause_ms, self._turn)
            return
        self._host.touched = True
        ready = self._ready
        _set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.is_cancelled:
                    handle.context.run(handle.callback, *handle.args)
                if self._is_dead():
                    return
        finally:
            _set_running_loop(None)
        self._host.after_turn()
        if ready and not self._scheduled:
            self._scheduled = True
            self._world.call_later(0.0, self._turn)

    def _is_dead(self) -> bool:
        """A callback may have ended the process."""
        return self.dead

    # Tasks and threads

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "simulated", context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [other for other in self._tasks if not other.done()]
            self._prune_at = max(64, 2 * len(self._tasks))
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        del executor
        future = self.create_future()
        self._world.call_later(
            self._world.random.uniform(*self._host.flush_ms), lambda: self._finish(future, func, args)
        )
        return future

    def _finish(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.dead:
            return
        pause_ms = self._host.paused_until - self._world.now_ms
        if pause_ms > 0:
            self._world.call_later(pause_ms, lambda: self._finish(future, func, args))
            return
        self._host.touched = self._host.in_thread = True
        try:
            result = func(*args)
        except DiskHang as hang:
            self._world.call_later(hang.until_ms - self._world.now_ms, lambda: self._finish(future, func, args))
        except Exception as error:  # noqa: BLE001 - the future has it, as from a thread
            self.call_soon(_settle, future, None, error)
        else:
            self.call_soon(_settle, future, result, None)
        finally:
            self._host.in_thread = False

    # Connections

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[FakeTransport, Any]:
        connected = self.create_future()
        self.network.connect(self, (host, port), connected)
        end = await connected
        protocol = protocol_factory()
        transport = FakeTransport(self, end, protocol)
        return transport, protocol

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self.network.sockets[fd].on_readable(self, callback, args)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        sock = self.network.sockets.get(fd)
        return sock is not None and sock.forget_reader()

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        raise RuntimeError(f"a simulated socket always has room to write: {fd} {callback} {args}")

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        del fd
        return False

    # Life and death

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Of tasks that nobody waits for. A callback that raises ends the simulation by itself."""
        error = context.get("exception")
        if error is not None and not self.dead:
            self._world.note(lambda: f"{self._host.node_id} task failed: {error!r}")
            log.error("task.failed", exc_info=error)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        """After the simulation: end the coroutines of this life, whose cleanup code may not do anything any more."""
        self.dead = True
        self._ready.clear()
        _set_running_loop(self)
        try:
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - or its end is reported
                _close(task.get_coro())
        finally:
            _set_running_loop(None)
        self._tasks.clear()


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSE_ATTEMPTS):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - the process is dead: its cleanup means nothing
            continue
        return


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
