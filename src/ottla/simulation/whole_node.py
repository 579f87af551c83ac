"""A whole node of the simulated cluster: `ottla.server.node.Node` itself, on a simulated machine and loop.

The node is formatted, started, served, stopped and restarted by the product's own code. This file only decides when a
life begins and ends. A killed process keeps its written bytes; a host that loses its power loses bytes that were not
synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.controller.format import FormatError, FormatRequest, format_storage
from ottla.metadata.meta_properties import MetaPropertiesError
from ottla.server.errors import StartupError
from ottla.server.node import Node
from ottla.simulation.faulty_disk import FaultyDisk
from ottla.simulation.loop import SimulatedLoop
from ottla.simulation.machine import simulated_machine
from ottla.simulation.node import NodeSpec, SimulatedNode
from ottla.simulation.world import SimulatedRandom

if TYPE_CHECKING:
    from ottla.metadata.publisher import MetadataPublisher
    from ottla.protocol.primitives import Message
    from ottla.raft.voters import VoterSet
    from ottla.replication.replicas import Replicas
    from ottla.simulation.network import FakeNetwork
    from ottla.simulation.streams import StreamNetwork
    from ottla.simulation.world import World

METADATA_FOLDER = "/data"


class WholeNode(SimulatedNode):
    def __init__(
        self, world: World, network: FakeNetwork, wires: StreamNetwork, spec: NodeSpec, voters: VoterSet | None
    ) -> None:
        """`voters`: the initial controllers of a quorum whose voters change; None if the settings name the voters."""
        self._wires = wires
        self._voters = voters
        self._loop: SimulatedLoop | None = None
        self._dead_loops: list[SimulatedLoop] = []
        self.process: Node | None = None
        self.replicas: Replicas | None = None
        self.on_ended: Callable[[SimulatedNode], None] = lambda _node: None
        """The process ended by itself: its start failed, its disk failed, or it was stopped."""
        super().__init__(world, network, spec)
        self.disk: FaultyDisk = FaultyDisk(world.random, self.clock.time_ms, self)

    # --------------------------------------------------------------------------------------------------- life and death

    @property
    def up(self) -> bool:
        return self._loop is not None

    @property
    def publisher(self) -> MetadataPublisher | None:
        quorum = self.process.quorum if self.process is not None else None
        return None if quorum is None else quorum.publisher

    @property
    def has_failed_directory(self) -> bool:
        broker = self.process.broker if self.process is not None else None
        return broker is not None and len(broker.logs.online_directories()) < len(broker.logs.directories)

    def start(self) -> None:
        self.life += 1
        self.touched = True
        self.failure = None
        dice = SimulatedRandom(random.Random(self.world.random.random()))  # noqa: S311 - it must be repeatable
        loop = self._loop = SimulatedLoop(self.world, self, self._wires)  # type: ignore[abstract]  # the product uses no other method
        self._wires.power_on(loop.address)
        machine = simulated_machine(loop, self.disk, self.clock, dice)
        life = self.life

        async def live() -> None:
            try:
                self._format(dice)
                process = self.process = Node(self.spec.rules, machine)
                await process.start()
                self.failure = await process.failed()
                await process.stop()
            except (StartupError, FormatError, MetaPropertiesError, OSError) as error:
                self.failure = str(error)
            if self.life == life:
                self._end()

        loop.call_soon(lambda: loop.create_task(live()))

    def _end(self) -> None:
        self.world.note(lambda: f"{self.node_id} ends: {self.failure}")
        self.kill(power=False)
        self.on_ended(self)

    def _format(self, dice: SimulatedRandom) -> None:
        """As `ottla storage format` does it, once for each disk."""
        config = self.spec.rules
        request = FormatRequest(
            cluster_id=self.spec.config.cluster_id,
            node_id=self.node_id,
            log_dirs=list(config.data_dirs),
            metadata_log_dir=config.metadata_log_dir,
            initial_controllers=self._voters,
            ignore_formatted=True,
        )
        format_storage(self.disk, self.clock, dice, request)

    def kill(self, *, power: bool | None = None) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.dead = True
            self._dead_loops.append(loop)
        self.process = self.replicas = None
        was_up = loop is not None
        cuts = power if power is not None else not self.spec.partitions and self.world.random.random() < 0.7
        super().kill(power=cuts)
        if loop is not None and was_up:
            self._wires.process_ended(loop, power=cuts)

    def stop(self) -> None:
        """A clean stop, as after a signal."""
        process, life = self.process, self.life

        async def stop() -> None:
            if process is not None:
                await process.stop()
            if self.life == life:
                self.failure = "stopped"
                self._end()

        if self._loop is not None:
            self._loop.create_task(stop())

    def close(self) -> None:
        """After the simulation."""
        if self._loop is not None:
            self.kill(power=False)
        for loop in self._dead_loops:
            loop.close()
        self._dead_loops.clear()

    def after_turn(self) -> None:
        """What the invariants look at, as it is after this turn of the loop."""
        process = self.process
        quorum = process.quorum if process is not None else None
        self.raft = None if quorum is None else quorum.raft
        self.runtime = None if quorum is None else quorum.runtime
        broker = process.broker if process is not None else None
        self.replicas = None if broker is None else broker.replicas

    # ------------------------------------------------------------------------------------------------- the outside world

    def when_awake(self, action: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon(action)

    def _receive(self, request: Message, reply: Callable[[Message], None]) -> None:
        quorum = self.process.quorum if self.process is not None else None
        if quorum is not None:
            quorum.receive(request, request.MAX_VERSION, reply)
