"""The active controller checks brokers that may have died: a broken heartbeat connection starts a check at once.

A broker whose port refuses connections is not running. Fencing it at once, and not at the end of its session, is safe
and moves its partitions early. Silence proves nothing, so a hanging broker is fenced only when its session ends. A new
controller checks every broker once: the previous controller may have died together with its own broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.ids import NodeId
from ottla.runtime.node_client import reachable

if TYPE_CHECKING:
    from ottla.metadata.image import BrokerRegistration, MetadataImage

log = get_logger(__name__)

PROBE_TIMEOUT_MS = 2_000
WATCH_MS = 100
LOOKS_MS = (0, 50, 200, 500, 1_000)
"""Pauses before each check of a broker whose connection broke."""


class Departures:
    def __init__(
        self,
        node_id: NodeId,
        *,
        image: Callable[[], MetadataImage],
        active_epoch: Callable[[], int | None],
        fence: Callable[[NodeId, int], None],
    ) -> None:
        """`active_epoch` is the quorum's epoch while this node is its active controller; `fence` a broker by its epoch."""
        self._node_id = node_id
        self._image = image
        self._active_epoch = active_epoch
        self._fence = fence
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watch = asyncio.ensure_future(self._watch_leadership())

    def stop(self) -> None:
        for task in (*self._tasks, *([self._watch] if self._watch is not None else [])):
            task.cancel()

    async def _watch_leadership(self) -> None:
        seen_epoch: int | None = None
        while True:
            epoch = self._active_epoch()
            if epoch is not None and epoch != seen_epoch:
                for broker in list(self._image().brokers.values()):
                    self.on_disconnected(broker.id, broker.epoch)
            seen_epoch = epoch
            await asyncio.sleep(WATCH_MS / 1000)

    def on_disconnected(self, broker_id: NodeId, broker_epoch: int) -> None:
        """The broker's heartbeat connection broke, or this controller has none."""
        if broker_id == self._node_id or self._active_epoch() is None:
            return
        task = asyncio.ensure_future(self._look(broker_id, broker_epoch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, broker_id: NodeId, broker_epoch: int) -> None:
        """Check more than once. A killed process loses its connections before its ports, and a port that is still open
        for a moment accepts connections that no process answers.
        """
        for pause_ms in LOOKS_MS:
            await asyncio.sleep(pause_ms / 1000)
            broker = self._image().brokers.get(broker_id)
            if broker is None or broker.fenced or broker.epoch != broker_epoch or self._active_epoch() is None:
                return
            if not await _anybody_there(broker):
                log.warning("broker.disconnected", broker=broker_id, reason="its ports refuse connections")
                self._fence(broker_id, broker_epoch)
                return


async def _anybody_there(broker: BrokerRegistration) -> bool:
    for listener in broker.listeners.values():
        if await reachable(listener.host, listener.port, PROBE_TIMEOUT_MS):
            return True
    return False
