"""The clients' machine: coroutines that speak the wire to the simulated cluster, with the product's own connections."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.simulation.loop import SimulatedLoop
from ottla.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.model.ids import NodeId
    from ottla.simulation.node import SimulatedNode
    from ottla.simulation.streams import StreamNetwork
    from ottla.simulation.world import World

CLIENT_NODE = 200
"""The last number of the clients' address; no link to clients breaks."""
TIMEOUT_MS = 6_000.0


class ClientHost:
    """A machine that neither pauses nor dies."""

    def __init__(self) -> None:
        self.node_id = CLIENT_NODE
        self.touched = False
        self.paused_until = 0.0
        self.flush_ms = (0.1, 1.0)
        self.in_thread = False

    def after_turn(self) -> None:
        """Nothing of it is checked."""


class Clients:
    def __init__(self, world: World, wires: StreamNetwork, nodes: Sequence[SimulatedNode]) -> None:
        self.world = world
        self.nodes = nodes
        self.loop = SimulatedLoop(world, ClientHost(), wires)  # type: ignore[abstract]  # the product uses no other method
        self.failures: list[Exception] = []
        """Promises that a client has seen broken, and answers that no client understands."""
        self._idle: dict[NodeId, list[NodeClient]] = {}

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.call_soon(lambda: self.loop.create_task(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except NodeUnavailable:
            return
        except Exception as error:  # noqa: BLE001 - a broken promise, or a bug of the client
            self.failures.append(error)

    def time_ms(self) -> int:
        return EPOCH_MS + int(self.world.now_ms)

    @property
    def image(self) -> MetadataImage | None:
        """The newest metadata of any node."""
        publishers = [node.publisher for node in self.nodes if node.publisher is not None]
        return max(publishers, key=lambda publisher: publisher.offset).image if publishers else None

    def brokers(self) -> list[NodeId]:
        return [node.node_id for node in self.nodes if node.spec.partitions]

    def connection(self, broker: NodeId) -> NodeClient:
        """A connection of its own, for requests whose order counts."""
        return NodeClient(f"10.0.0.{broker}", 9092, client_id="simulated", request_timeout_ms=TIMEOUT_MS)

    async def ask(
        self, broker: NodeId, request: Any, *, version: int | None = None, timeout_ms: float = TIMEOUT_MS
    ) -> Any:
        """The answer; NodeUnavailable without one. Requests under way at once have a connection each."""
        idle = self._idle.setdefault(broker, [])
        client = idle.pop() if idle else self.connection(broker)
        try:
            return await client.send(request, version=version, timeout_ms=timeout_ms)
        finally:
            idle.append(client)
