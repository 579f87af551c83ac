"""One simulated member of a quorum: the real raft node and the real controller, or a broker's observer, on fake disk,
time, network. Messages are objects here, so that they may be lost, doubled and reordered one by one. Nodes with
partitions are whole nodes (`ottla.simulation.whole_node`).

A node can be killed, paused (it does nothing, its timers come late, its peers' messages wait), wiped, and started
again.

A killed broker with partitions keeps its unsynced writes, as a process that dies does. Replication does not sync, so
only a power cut that spares another replica may lose them. For other nodes most kills are power cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.controller.config_rules import ConfigRules
from ottla.controller.error_responses import error_response
from ottla.controller.observer import MetadataObserver
from ottla.controller.runtime import ControllerRuntime
from ottla.controller.state import ControllerRequestContext, ControllerSettings, ControllerState
from ottla.env.config.broker.config import BrokerConfig
from ottla.metadata.publisher import MetadataPublisher
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId
from ottla.protocol.generated.alter_partition_request import AlterPartitionRequest
from ottla.protocol.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest
from ottla.protocol.primitives import Message
from ottla.raft.config import RaftConfig
from ottla.raft.driver import Done
from ottla.raft.node import RaftNode
from ottla.raft.outbound import Outbound
from ottla.simulation.disk import FakeDisk
from ottla.simulation.network import FakeNetwork
from ottla.simulation.world import Event, SimulatedClock, SimulatedRandom, World

LOG_DIR = "/data/__cluster_metadata-0"
_OF_BROKERS = (
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
)
"""The active controller decides these requests; the quorum handles all other requests that reach a node here."""


class Answered:
    """An answer of the controller that a simulated client waits for."""

    def __init__(self) -> None:
        self.result: Any = None
        self.exception: BaseException | None = None
        self._done = False
        self._then: Callable[[Answered], None] | None = None

    def set_result(self, result: Any) -> None:
        self.result, self._done = result, True
        if self._then is not None:
            self._then(self)

    def set_exception(self, exception: BaseException) -> None:
        self.exception, self._done = exception, True
        if self._then is not None:
            self._then(self)

    def then(self, callback: Callable[[Answered], None]) -> None:
        if self._done:
            callback(self)
        else:
            self._then = callback

    def done(self) -> bool:
        return self._done


@dataclass(frozen=True, slots=True)
class NodeSpec:
    config: RaftConfig
    rules: BrokerConfig
    bootstrap: tuple[Message, ...] = ()
    prepare: Callable[[FakeDisk], None] | None = None
    """Formats the disk before the first start."""
    partitions: bool = False
    """A broker with partitions, beside the observer."""
    session_timeout_ms: int = 9_000


class SimulatedNode:
    def __init__(self, world: World, network: FakeNetwork, spec: NodeSpec) -> None:
        self.world = world
        self.network = network
        self.spec = spec
        self.node_id: NodeId = spec.config.node_id
        self.clock = SimulatedClock(world, world.random.randint(-2_000, 2_000))
        self.disk = FakeDisk(world.random, self.clock.time_ms)
        self.life = 0
        self.touched = True
        """Something happened to it since the invariants were last checked."""
        self.paused_until = 0.0
        self.raft: RaftNode | None = None
        self.runtime: ControllerRuntime | None = None
        self.observer: MetadataObserver | None = None
        self.timers = _Timers(self, 0)
        self.flush_ms = (0.1, 4.0)
        self.in_thread = False
        self.failure: str | None = None
        if spec.prepare is not None:
            spec.prepare(self.disk)

    # --------------------------------------------------------------------------------------------------- life and death

    @property
    def up(self) -> bool:
        return self.raft is not None

    @property
    def publisher(self) -> MetadataPublisher | None:
        part = self.runtime or self.observer
        return None if part is None else part.publisher

    def start(self) -> None:
        """Raises OSError if the disk fails."""
        self.life += 1
        self.touched = True
        self.failure = None
        world, config = self.world, self.spec.config
        random = SimulatedRandom(world.random)
        raft = RaftNode(self.disk, LOG_DIR, self.clock, config, random)
        timers = self.timers = _Timers(self, self.life)
        blocking, send = self._blocking(self.life), self._sender()
        if config.controller:
            state = ControllerState(
                settings=ControllerSettings(
                    cluster_id=config.cluster_id,
                    node_id=config.node_id,
                    broker_session_timeout_ms=self.spec.session_timeout_ms,
                ),
                rules=ConfigRules(self.spec.rules),
                quorum=raft,
                clock=self.clock,
                random=random,
            )
            self.runtime = ControllerRuntime(
                raft,
                state,
                new_answer=Answered,
                blocking=blocking,
                send=send,
                timers=timers,
                on_failure=self.on_failure,
            )
            self.raft = raft
            self.runtime.start(list(self.spec.bootstrap))
        else:
            self.observer = MetadataObserver(
                raft, blocking=blocking, send=send, timers=timers, on_failure=self.on_failure
            )
            self.raft = raft
            self.observer.start()
        world.call_later(500, _Guard(self, self.life, self._tick))

    def _tick(self) -> None:
        (self.runtime or self.observer).tick()  # type: ignore[union-attr]  # a node that is up has one of them
        self.world.call_later(500, _Guard(self, self.life, self._tick))

    def kill(self, *, power: bool | None = None) -> None:
        """The process dies; with `power`, unsynced writes may be lost too."""
        cut = power if power is not None else not self.spec.partitions and self.world.random.random() < 0.7
        self.world.note(lambda: f"{self.node_id} {'loses its power' if cut else 'killed'}")
        self.raft = self.runtime = self.observer = None
        self.life += 1
        if cut:
            self.disk.cut_power()

    def pause(self, duration_ms: float) -> None:
        self.world.note(lambda: f"{self.node_id} paused for {duration_ms:.0f} ms")
        self.paused_until = self.world.now_ms + duration_ms

    def wipe(self) -> None:
        """A new, empty disk. Only for replicas whose loss a majority survives."""
        self.kill(power=True)
        self.disk.wipe()

    def on_failure(self, error: OSError) -> None:
        """The real node ends its process when the metadata disk fails."""
        self.failure = str(error)
        self.world.note(lambda: f"{self.node_id} failed: {error}")
        self.world.call_later(0, _Guard(self, self.life, self.kill))

    # ------------------------------------------------------------------------------------------------- the outside world

    def receive(self, request: Message, reply: Callable[[Message], None]) -> None:
        self.when_awake(lambda: self._receive(request, reply))

    def _receive(self, request: Message, reply: Callable[[Message], None]) -> None:
        part = self.runtime or self.observer
        if isinstance(request, _OF_BROKERS):
            self._decide(request, reply)
        elif part is not None:
            part.driver.receive(request, request.MAX_VERSION, reply)

    def _decide(self, request: Message, reply: Callable[[Message], None]) -> None:
        if self.runtime is None:
            reply(error_response(request, KafkaError(ErrorCode.NOT_CONTROLLER)))
            return
        answer = self.runtime.submit(request, ControllerRequestContext(version=request.MAX_VERSION))

        def done(answered: Answered) -> None:
            if isinstance(answered.exception, KafkaError):
                reply(error_response(request, answered.exception))
            else:
                reply(answered.result)

        answer.then(done)  # type: ignore[attr-defined]  # as made by `start`

    def respond(self, outbound: Outbound, response: Message | None, *, connection_refused: bool) -> None:
        self.when_awake(lambda: self._respond(outbound, response, connection_refused=connection_refused))

    def _respond(self, outbound: Outbound, response: Message | None, *, connection_refused: bool) -> None:
        part = self.runtime or self.observer
        if part is not None:
            part.driver.respond(outbound, response, connection_refused=connection_refused)

    def when_awake(self, action: Callable[[], None]) -> None:
        """Now; after the pause when the node is paused; never when it dies before."""
        self.touched = True
        pause = self.paused_until - self.world.now_ms
        if pause <= 0:
            action()
        else:
            self.world.call_later(pause, _Guard(self, self.life, action))

    def _sender(self) -> Callable[[Outbound], None]:
        return lambda outbound: self.network.send(self, outbound)

    def _blocking(self, life: int) -> Callable[[Callable[[], None], Done], None]:
        """Work on a disk takes time; its effect counts from the moment when it ends."""

        def run(work: Callable[[], None], done: Done) -> None:
            def finish() -> None:
                error: OSError | None = None
                try:
                    work()
                except OSError as caught:
                    error = caught
                done(error)

            self.world.call_later(self.world.random.uniform(*self.flush_ms), _Guard(self, life, finish))

        return run


class _Guard:
    """An action of one life of a node: dropped in the next life, and delayed while the node is paused."""

    __slots__ = ("_action", "_life", "_node")

    def __init__(self, node: SimulatedNode, life: int, action: Callable[[], None]) -> None:
        self._node = node
        self._life = life
        self._action = action

    def __call__(self) -> None:
        node = self._node
        if node.life == self._life and node.up:
            node.when_awake(self._action)


class _Timers:
    def __init__(self, node: SimulatedNode, life: int) -> None:
        self._node = node
        self._life = life

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Event:
        return self._node.world.call_later(delay_ms, _Guard(self._node, self._life, callback))
