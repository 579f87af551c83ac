"""The network of a scenario: the wires of the simulator, with nodes whose messages need longer."""

from __future__ import annotations

import random

from ottla.model.ids import NodeId
from ottla.simulation.network import FakeNetwork
from ottla.simulation.streams import StreamNetwork
from ottla.simulation.world import World


class ScenarioWires(StreamNetwork):
    def __init__(self, world: World, links: FakeNetwork) -> None:
        super().__init__(world, links)
        self.slow: dict[NodeId, float] = {}
        """Additional milliseconds of each message from and to a node."""

    def delay_ms(self, link: tuple[NodeId, NodeId], dice: random.Random) -> float:
        delay = super().delay_ms(link, dice)
        if not self.slow:
            return delay
        return delay + self.slow.get(link[0], 0.0) + self.slow.get(link[1], 0.0)
