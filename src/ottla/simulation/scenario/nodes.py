"""The nodes of a scenario: `ottla.server.node.Node` with the properties of the scenario, on a simulated machine.

Timeouts are Kafka's defaults unless the scenario sets them. Only internal topics are smaller than by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.env.config.load import load
from ottla.model.ids import NodeId, Uuid
from ottla.raft.config import Address, RaftConfig
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.simulation.node import NodeSpec
from ottla.simulation.scenario.plan import FIRST_CONTROLLER
from ottla.simulation.whole_node import METADATA_FOLDER, WholeNode
from ottla.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from ottla.simulation.network import FakeNetwork
    from ottla.simulation.scenario.plan import ClusterPlan
    from ottla.simulation.streams import StreamNetwork
    from ottla.simulation.world import World

CLUSTER_ID = "simulated-cluster-0001"
LOG_FOLDER = "/logs"
SYNC_MS = (0.1, 4.0)
"""How long a sync of an ordinary disk lasts."""
_CONTROLLER_PORT = 9093
_INTERNAL = {
    "log.cleaner.dedupe.buffer.size": "1048577",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
"""Smaller than by default: a simulated cluster is small and its memory is this process."""
_DECIDED = {
    "process.roles": "",
    "node.id": "",
    "broker.id": "",
    "broker.rack": "",
    "listeners": "",
    "advertised.listeners": "",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "",
    "controller.quorum.bootstrap.servers": "",
    "log.dir": "",
    "log.dirs": "",
    "metadata.log.dir": METADATA_FOLDER,
    "auto.create.topics.enable": "false",
    "ottla.busy.poll.us": "0",
}
"""Busy polling goes by the real clock."""
DECIDED = frozenset(_DECIDED)
"""Properties that a scenario cannot set."""


class JumpingClock:
    """A node's view of time: an administrator, or NTP, may set its wall clock. The monotonic clock goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew_ms = 0.0

    def time_ms(self) -> int:
        return EPOCH_MS + int(self._world.now_ms + self.skew_ms)

    def monotonic_ms(self) -> float:
        return self._world.now_ms


class ScenarioNode(WholeNode):
    """A whole node whose clock may jump."""

    def __init__(self, world: World, network: FakeNetwork, wires: StreamNetwork, spec: NodeSpec) -> None:
        super().__init__(world, network, wires, spec, None)
        self.wall_clock = JumpingClock(world)
        self.clock = self.wall_clock  # type: ignore[assignment]  # a clock by its shape
        self.flush_ms = SYNC_MS

    @property
    def is_broker(self) -> bool:
        return self.spec.partitions

    @property
    def title(self) -> str:
        return title(self.node_id)

    @property
    def paused(self) -> bool:
        return self.paused_until > self.world.now_ms

    def jump(self, by_ms: float) -> None:
        self.wall_clock.skew_ms += by_ms


def title(node_id: NodeId) -> str:
    return f"{'broker' if node_id < FIRST_CONTROLLER else 'controller'} {node_id}"


def controller_ids(cluster: ClusterPlan) -> range:
    return range(FIRST_CONTROLLER, FIRST_CONTROLLER + cluster.controllers)


def node_properties(cluster: ClusterPlan, node_id: NodeId) -> dict[str, str]:
    """The properties file of a node."""
    controller = node_id >= FIRST_CONTROLLER
    role, listener, port = (
        ("controller", "CONTROLLER", _CONTROLLER_PORT) if controller else ("broker", "PLAINTEXT", 9092)
    )
    replicas = str(min(3, cluster.brokers))
    voters = ",".join(f"{voter}@{_host(voter)}:{_CONTROLLER_PORT}" for voter in controller_ids(cluster))
    properties = {
        **_INTERNAL,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, cluster.brokers)),
        **cluster.properties,
        **{name: value for name, value in _DECIDED.items() if value},
        "process.roles": role,
        "node.id": str(node_id),
        "listeners": f"{listener}://{_host(node_id)}:{port}",
        "controller.quorum.voters": voters,
        "log.dirs": METADATA_FOLDER if controller else LOG_FOLDER,
    }
    if cluster.racks and not controller:
        properties["broker.rack"] = cluster.racks[(node_id - 1) % len(cluster.racks)]
    return properties


def build_nodes(world: World, network: FakeNetwork, wires: StreamNetwork, cluster: ClusterPlan) -> list[ScenarioNode]:
    """Controllers first, because brokers register with them."""
    voters = VoterSet(
        tuple(Voter(node_id, Uuid(bytes(16)), _endpoints(node_id)) for node_id in controller_ids(cluster))
    )
    nodes = []
    for node_id in (*controller_ids(cluster), *range(1, cluster.brokers + 1)):
        controller = node_id >= FIRST_CONTROLLER
        config = RaftConfig(
            node_id=node_id,
            directory_id=Uuid(bytes([node_id]) * 16),
            cluster_id=CLUSTER_ID,
            controller=controller,
            static_voters=voters,
            bootstrap_servers=tuple(Address(_host(voter.id), _CONTROLLER_PORT) for voter in voters.voters),
            endpoints=_endpoints(node_id),
        )
        spec = NodeSpec(config, load(node_properties(cluster, node_id)), partitions=not controller)
        nodes.append(ScenarioNode(world, network, wires, spec))
    return nodes


def _endpoints(node_id: NodeId) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint("CONTROLLER", _host(node_id), _CONTROLLER_PORT),)


def _host(node_id: NodeId) -> str:
    return f"10.0.0.{node_id}"
