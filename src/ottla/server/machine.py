"""The machine that a node runs on: everything of the operating system that a node gets from outside.

`real_machine` is this machine. The simulator passes its own (`ottla.simulation.machine`). The node's event loop is the
other half of the seam: connections, timers and work in threads go through the running loop, which may be a simulated one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from ottla.broker.dispatch import Dispatcher
from ottla.runtime.clock import SystemClock, SystemRandom
from ottla.runtime.descriptors import Descriptors
from ottla.runtime.listener import bind
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.timers import LoopTimers
from ottla.server.formatting.storage import open_storage
from ottla.system.hangups import Hangups

if TYPE_CHECKING:
    from ottla.broker.apis import ServedApi
    from ottla.broker.planes import NodePlane
    from ottla.broker.slices import Slices
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, RandomSource, Storage, Timers
    from ottla.runtime.listener import HangupWatch

_SYNC_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMachine:
    clock: Clock
    random: RandomSource
    open_storage: Callable[[BrokerConfig], Storage]
    """Raises StartupError if the configured directories cannot be used."""
    bind: Callable[[str, int], socket.socket]
    """A listening socket. Raises OSError if the address is in use."""
    watch_loop: Callable[[float], LoopWatch | None]
    """Watches the running loop for stalls of so many seconds; None if the loop's time is not this machine's."""
    watch_hangups: Callable[[asyncio.AbstractEventLoop], HangupWatch]
    monotonic: Callable[[], float]
    """Seconds; moves while the loop runs one callback."""
    descriptors: Callable[[], Descriptors]
    run_all: Callable[[Iterable[Callable[[], None]]], None]
    """Run the syncs of a shutdown, and return when all have ended."""
    liveness: Clock | None = None
    """The clock by which nodes watch each other: quorum, broker sessions, replicas in sync. None means `clock`. The test
    kit moves `clock` alone.
    """
    timers: Callable[[asyncio.AbstractEventLoop], Timers] = LoopTimers
    """Timers that follow `clock`: coordinators, housekeeping, requests that wait."""
    dispatcher: Callable[[NodePlane, dict[int, ServedApi], Slices], Dispatcher] = Dispatcher
    """Answers the requests of a listener. The test kit passes a dispatcher that injects faults."""


def real_machine() -> NodeMachine:
    return NodeMachine(
        clock=SystemClock(),
        random=SystemRandom(),
        open_storage=open_storage,
        bind=bind,
        watch_loop=LoopWatch,
        watch_hangups=Hangups,
        monotonic=monotonic,
        descriptors=Descriptors.available,
        run_all=_in_threads,
    )


def _in_threads(calls: Iterable[Callable[[], None]]) -> None:
    """Run the syncs of a shutdown in parallel: a disk handles several at once."""
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for _ in pool.map(lambda call: call(), calls):
            pass
