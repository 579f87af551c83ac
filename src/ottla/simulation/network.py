"""A fake network: requests and answers are delayed, lost, doubled, reordered; links break and clog.

A request to a node that is down is refused at once, like by the port of a dead process. A request over a broken link
gets no answer, and the sender times out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.protocol.primitives import Message
from ottla.raft.config import Address
from ottla.raft.outbound import Outbound
from ottla.simulation.world import World

if TYPE_CHECKING:
    from ottla.model.ids import NodeId


class NetworkEndpoint(Protocol):
    """A node as the network sees it."""

    node_id: NodeId

    @property
    def life(self) -> int:
        """Rises with every start: answers to requests of an earlier life are dropped."""
        ...

    @property
    def up(self) -> bool: ...

    def receive(self, request: Message, reply: Callable[[Message], None]) -> None: ...

    def respond(self, outbound: Outbound, response: Message | None, *, connection_refused: bool) -> None: ...


class PeerCallback(Protocol):
    def __call__(self, response: Message | None, *, connection_refused: bool) -> None: ...


@dataclass(slots=True)
class Weather:
    """How badly the network behaves."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: tuple[float, float] = (0.3, 3.0)
    slow: float = 0.0
    """How often a message takes a hundred times as long."""


class FakeNetwork:
    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes: dict[Address, NetworkEndpoint] = {}
        self.weather = Weather()
        self.broken: set[tuple[NodeId, NodeId]] = set()
        """Directed links that lose everything."""
        self.clogged: dict[tuple[NodeId, NodeId], float] = {}
        """Directed links that deliver nothing before this moment."""
        self.lag_ms: dict[tuple[NodeId, NodeId], float] = {}
        """Directed links that take so much longer; only connections have them."""
        self.messages = 0

    def attach(self, address: Address, node: NetworkEndpoint) -> None:
        self._nodes[address] = node

    def send(self, sender: NetworkEndpoint, outbound: Outbound) -> None:
        world = self._world
        life = sender.life
        target = self._nodes.get(outbound.address)
        limit = world.call_later(
            outbound.timeout_ms, lambda: self._answer(sender, life, outbound, None, connection_refused=False)
        )
        if target is None:
            return

        def answer(response: Message | None, *, connection_refused: bool) -> None:
            limit.cancel()
            self._answer(sender, life, outbound, response, connection_refused=connection_refused)

        for _ in range(self._copies()):
            self._carry(sender.node_id, target.node_id, lambda: self._arrive(sender, target, outbound, answer))

    def _arrive(
        self, sender: NetworkEndpoint, target: NetworkEndpoint, outbound: Outbound, answer: PeerCallback
    ) -> None:
        if not target.up:
            self._carry(target.node_id, sender.node_id, lambda: answer(None, connection_refused=True))
            return

        def reply(response: Message) -> None:
            for _ in range(self._copies()):
                self._carry(target.node_id, sender.node_id, lambda: answer(response, connection_refused=False))

        self.messages += 1
        self._world.note(lambda: f"{sender.node_id} -> {target.node_id}  {outbound.request!r}")
        target.receive(outbound.request, reply)

    def _answer(
        self,
        sender: NetworkEndpoint,
        life: int,
        outbound: Outbound,
        response: Message | None,
        *,
        connection_refused: bool,
    ) -> None:
        if sender.life == life and sender.up:
            if response is not None:
                self._world.note(lambda: f"{sender.node_id} <- {outbound.node_id}  {response!r}")
            sender.respond(outbound, response, connection_refused=connection_refused)

    def _copies(self) -> int:
        dice, weather = self._world.random, self.weather
        if weather.loss and dice.random() < weather.loss:
            return 0
        return 2 if weather.duplication and dice.random() < weather.duplication else 1

    def _carry(self, source: NodeId, target: NodeId, deliver: Callable[[], None]) -> None:
        """A broken link is checked twice: when the message leaves and when it would arrive."""
        link = (source, target)
        if link in self.broken:
            return
        dice, weather = self._world.random, self.weather
        delay = dice.uniform(*weather.delay_ms)
        if weather.slow and dice.random() < weather.slow:
            delay *= 100
        clogged_until = self.clogged.get(link, 0.0)
        if clogged_until > self._world.now_ms:
            delay += clogged_until - self._world.now_ms

        def arrive() -> None:
            if link not in self.broken:
                deliver()

        self._world.call_later(delay, arrive)
