"""A cluster from a seed: how many voters and observers, static or dynamic, which faults; run, healed, judged."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from functools import cache

from ottla.controller.bootstrap import bootstrap_records
from ottla.env.config.broker.config import BrokerConfig
from ottla.env.config.load import load
from ottla.metadata.features import LATEST_METADATA_VERSION, default_levels
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId, Uuid
from ottla.protocol.primitives import Message
from ottla.raft.config import Address, RaftConfig
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.snapshots import BOOTSTRAP_SNAPSHOT, encode_snapshot
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.simulation.clients import Clients
from ottla.simulation.complaints import Complaints
from ottla.simulation.composition import PLAIN, Composition, composition_of
from ottla.simulation.disk import FakeDisk
from ottla.simulation.disk_invariants import DiskInvariants
from ottla.simulation.faults import Faults
from ottla.simulation.group_work import GroupWork
from ottla.simulation.history import RecordedHistory
from ottla.simulation.idle_group import PASSED_MS
from ottla.simulation.invariants import Invariants, Violation
from ottla.simulation.ledger import Ledger
from ottla.simulation.loads import Loads
from ottla.simulation.machine import SHORT_LIFE
from ottla.simulation.network import FakeNetwork
from ottla.simulation.node import LOG_DIR, NodeSpec, SimulatedNode
from ottla.simulation.rare_faults import RareFaults
from ottla.simulation.records import Promise, Records
from ottla.simulation.replica_invariants import ReplicaInvariants, Truth
from ottla.simulation.streams import StreamNetwork
from ottla.simulation.transactions import TransactionalWork
from ottla.simulation.whole_node import METADATA_FOLDER, WholeNode
from ottla.simulation.workload import WireWorkload, Workload
from ottla.simulation.world import World

CLUSTER_ID = "simulated-cluster-0001"
FAULTS_MS = 14_000.0
HEALED_MS = 9_000.0
DISK_CHECK_MS = 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    voters: int = 3
    observers: int = 1
    dynamic: bool = False
    """kraft.version 1, formatted with --initial-controllers."""
    brokers: int = 3
    """That only register and stay alive."""
    partitions: bool = False
    """All nodes are whole nodes. The observers are brokers with partitions, which producers and consumers use."""
    snapshot_bytes: int = 1 << 20
    segment_bytes: int = 4096
    fetch_max_bytes: int = 1 << 20
    """Bytes of the metadata log in one answer: small answers leave a follower behind for a while."""
    composition: Composition = PLAIN
    """Of whole nodes."""


@dataclass(slots=True)
class Outcome:
    seed: int
    shape: ClusterShape
    events: int = 0
    faults: int = 0
    elections: int = 0
    committed: int = 0
    answered: int = 0
    acked: int = 0
    """Batches that were acknowledged to producers."""
    unclean: int = 0
    """Partitions whose acknowledgements became void by an unclean election."""
    violation: str | None = None
    trace: list[str] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    """How often each kind of client work came to its end."""


class SimulatedCluster:
    def __init__(self, world: World, shape: ClusterShape) -> None:
        self.world = world
        self.shape = shape
        self.network = FakeNetwork(world)
        self.wires = StreamNetwork(world, self.network)
        count = shape.voters + shape.observers
        self.directories = {node_id: _directory(node_id) for node_id in range(1, count + 1)}
        self.voters = VoterSet(
            tuple(
                Voter(node_id, self.directories[node_id] if shape.dynamic else Uuid(bytes(16)), _endpoints(node_id))
                for node_id in range(1, shape.voters + 1)
            )
        )
        self.whole = [self._whole_node(node_id) for node_id in self.directories] if shape.partitions else []
        self.nodes: list[SimulatedNode] = [*self.whole] or [self._node(node_id) for node_id in self.directories]
        self.clients = Clients(world, self.wires, self.whole)
        self.workload = (
            WireWorkload(world, self.nodes, CLUSTER_ID, self.clients, shape.composition)
            if shape.partitions
            else Workload(world, self.nodes, CLUSTER_ID, shape.brokers)
        )
        self.invariants = Invariants(self.nodes)
        self.ledger = Ledger()
        self.replicas = ReplicaInvariants(self.whole, self.ledger)
        self.records = Records(self.clients, self.ledger, self.replicas.committed_end)
        self.loads = Loads(self.clients, self.records, self.ledger)
        self.transactions = TransactionalWork(self.clients, self.records)
        self.groups = GroupWork(self.clients, self.records, self.ledger, self.replicas.truths, self._pass_hours)
        self.history = RecordedHistory(self.clients, self.records, self.replicas, shape.composition)
        self.history.sent = self.ledger.sent
        self.disks = DiskInvariants(self.ledger)
        self.complaints = Complaints()
        self.records.on_acked = self._on_acked
        self.records.on_read = self.replicas.on_read

    def _raft_config(self, node_id: NodeId) -> RaftConfig:
        shape = self.shape
        return RaftConfig(
            node_id=node_id,
            directory_id=self.directories[node_id],
            cluster_id=CLUSTER_ID,
            controller=node_id <= shape.voters,
            static_voters=None if shape.dynamic else self.voters,
            bootstrap_servers=tuple(_address(voter.id) for voter in self.voters.voters),
            endpoints=_endpoints(node_id),
            fetch_max_bytes=shape.fetch_max_bytes,
            log=MetadataLogConfig(segment_bytes=shape.segment_bytes),
            retention=SnapshotRetention(
                max_record_bytes=shape.snapshot_bytes, retention_bytes=shape.snapshot_bytes * 2, max_interval_ms=0
            ),
        )

    def _node(self, node_id: NodeId) -> SimulatedNode:
        config = self._raft_config(node_id)
        prepare = self._format if self.shape.dynamic and config.controller else None
        node = SimulatedNode(self.world, self.network, NodeSpec(config, _rules(), _bootstrap(), prepare))
        self.network.attach(_address(node_id), node)
        return node

    def _whole_node(self, node_id: NodeId) -> WholeNode:
        shape, config = self.shape, self._raft_config(node_id)
        servers = ",".join(f"{_host(voter.id)}:9093" for voter in self.voters.voters)
        voters = ",".join(f"{voter.id}@{_host(voter.id)}:9093" for voter in self.voters.voters)
        is_broker = shape.composition.is_broker(node_id, shape.voters)
        roles = [("controller", "CONTROLLER", 9093)] * config.controller + [("broker", "PLAINTEXT", 9092)] * is_broker
        properties = {
            **SHORT_LIFE,
            "process.roles": ",".join(role for role, _, _ in roles),
            "node.id": str(node_id),
            "listeners": ",".join(f"{name}://{_host(node_id)}:{port}" for _, name, port in roles),
            "controller.listener.names": "CONTROLLER",
            "metadata.log.dir": METADATA_FOLDER,
            "log.dirs": METADATA_FOLDER,
            "internal.metadata.log.segment.bytes": str(shape.segment_bytes),
            "metadata.log.max.record.bytes.between.snapshots": str(shape.snapshot_bytes),
            "metadata.max.retention.bytes": str(shape.snapshot_bytes * 2),
            "controller.quorum.fetch.max.bytes": str(shape.fetch_max_bytes),
        }
        if is_broker:
            properties |= shape.composition.properties(node_id)
        if shape.dynamic:
            properties["controller.quorum.bootstrap.servers"] = servers
        else:
            properties["controller.quorum.voters"] = voters
        spec = NodeSpec(config, load(properties), partitions=is_broker)
        initial = self.voters if shape.dynamic and config.controller else None
        node = WholeNode(self.world, self.network, self.wires, spec, initial)
        node.disk.forgetful = is_broker and shape.composition.forgetful
        return node

    def _format(self, disk: FakeDisk) -> None:
        """As `storage format --initial-controllers` does it: the voters in the 0-0 checkpoint."""
        data = encode_snapshot([], epoch=0, last_contained_timestamp=0, now_ms=0, kraft_version=1, voters=self.voters)
        disk.make_dirs(LOG_DIR)
        disk.write_atomic(f"{LOG_DIR}/{BOOTSTRAP_SNAPSHOT.file_name()}", data)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self.workload.start()
        if self.shape.partitions:
            self.records.start()
            self.loads.start()
            self.transactions.start()
            self.groups.start()
            self.history.start()
            self.world.call_later(DISK_CHECK_MS, self._check_disks)

    def _check_disks(self) -> None:
        for node in self.whole:
            self.disks.check(node)
        self.world.call_later(DISK_CHECK_MS, self._check_disks)

    def _on_acked(self, promise: Promise) -> None:
        self.history.on_acked(promise)
        self.replicas.on_acked(promise)

    def run(self, duration_ms: float) -> None:
        self.world.run_until(self.world.now_ms + duration_ms, self.check)

    def check(self) -> None:
        if self.clients.failures:
            raise self.clients.failures[0]
        if self.complaints.violation is not None:
            raise self.complaints.violation
        touched = []
        for node in self.nodes:
            if node.touched:
                node.touched = False
                touched.append(node)
        if not touched and not self.replicas.reads:
            return
        self.invariants.check(touched)
        if self.shape.partitions:
            self.replicas.check([node for node in touched if isinstance(node, WholeNode)])

    def lost(self, node_id: NodeId, whole_disk: bool) -> None:  # noqa: FBT001 - a callback of `Faults`
        """A node has lost its unsynced writes, or its whole disk."""
        if whole_disk:
            self.invariants.wiped(node_id)
            self.ledger.on_wiped(node_id)
        self.replicas.lost_power(node_id)

    def close(self) -> None:
        """End what still runs, so that nothing of this world is left in the process."""
        for node in self.whole:
            node.close()
        self.clients.loop.close()

    def end_work(self) -> None:
        """The clients end their work; the readers of transactions read what there is."""
        self.loads.stopped = True
        self.transactions.writing = False
        self.groups.end()
        self.history.stopped = True

    def _pass_hours(self) -> None:
        for node in self.nodes:
            node.clock.jump(PASSED_MS)

    # ----------------------------------------------------------------------------------------------------------- judging

    def judge(self) -> None:
        """After all faults are healed: one controller is active, all nodes catch up, acknowledged changes exist."""
        active = [node for node in self.nodes if node.runtime is not None and node.runtime.active]
        if len(active) != 1:
            roles = {n.node_id: type(n.raft.role).__name__ if n.raft else "down" for n in self.nodes}
            raise Violation(f"{len(active)} active controllers after everything works again: {roles}")
        end = active[0].raft.high_watermark if active[0].raft is not None else -1
        for node in self.nodes:
            if node.publisher is None or node.raft is None:
                raise Violation(f"node {node.node_id} does not come up again: {node.failure}")
            if end - node.raft.high_watermark > 50:
                raise Violation(f"node {node.node_id} is stuck at {node.raft.high_watermark} of {end}")
            self.invariants.same_image(node)
        image = active[0].publisher.image if active[0].publisher is not None else None
        lost = [name for name in sorted(self.workload.created) if image is None or name not in image.topics_by_name]
        if lost:
            raise Violation(f"topics were answered as created and are gone: {lost}")
        if image is not None and self.shape.partitions:
            self._judge_partitions(image)

    def _judge_partitions(self, image: MetadataImage) -> None:
        """Every replica is in sync and has everything that was ever committed."""
        for topic in image.topics_by_id.values():
            for index, registration in topic.partitions.items():
                where = f"{topic.name}-{index}"
                if registration.leader < 0 or set(registration.isr) != set(registration.replicas):
                    raise Violation(f"{where} does not recover: {registration}")
                for node in self.whole:
                    key = (topic.id, index)
                    if (
                        node.replicas is not None
                        and node.node_id in registration.replicas
                        and key in self.replicas.truths
                    ):
                        self.replicas.whole(node.node_id, key, node.replicas.by_id[topic.id][index])
        for promise in self.records.acked:
            if promise.key[0] in image.topics_by_id:
                self.replicas.kept(promise)
        self.disks.judge(self.whole)
        self.history.judge()
        if self.transactions.seen or self.transactions.committed:
            self._judge_transactions()
        self.groups.judge(image)

    def _judge_transactions(self) -> None:
        ends = {}
        for key in self.transactions.partition_keys():
            if self.replicas.truths.get(key, Truth()).unclean:
                return
            replicas = (n.replicas.by_id.get(key[0], {}).get(key[1]) for n in self.whole if n.replicas is not None)
            ends[key] = max((r.log.last_stable_offset for r in replicas if r is not None and r.is_leader), default=0)
        self.transactions.judge(ends)


def shape_of(world: World) -> ClusterShape:
    dice = world.random
    if world.seed % 2 == 0:
        voters, composition = dice.choice([1, 3]), composition_of(world.seed)
        return ClusterShape(
            voters=voters,
            observers=composition.observers(voters),
            dynamic=dice.random() < 0.5,
            partitions=True,
            snapshot_bytes=dice.choice([1 << 20, 20_000]),
            segment_bytes=dice.choice([4_096, 100_000]),
            composition=composition,
        )
    voters = dice.choice([3, 3, 3, 5, 1])
    return ClusterShape(
        voters=voters,
        observers=1 if voters == 1 else dice.choice([0, 1, 1]),
        dynamic=dice.random() < 0.5,
        snapshot_bytes=dice.choice([1 << 20, 6_000, 20_000]),
        segment_bytes=dice.choice([1_500, 4_096, 100_000]),
        fetch_max_bytes=dice.choice([1 << 20, 1 << 20, 800]),
    )


def run_seed(seed: int, *, trace: bool = False, faults_ms: float = FAULTS_MS) -> Outcome:
    """One life of one cluster. The same seed gives the same life, event by event."""
    world = World(seed)
    world.tracing = trace
    cluster = SimulatedCluster(world, shape_of(world))
    outcome = Outcome(seed, cluster.shape)
    faults = Faults(world, cluster.nodes, cluster.network, cluster.workload, faults_ms, cluster.lost)
    rare = RareFaults(cluster, faults, faults_ms)
    try:
        with cluster.complaints.heard():
            cluster.start()
            faults.start()
            rare.start()
            cluster.run(faults_ms)
            rare.heal()
            faults.heal()
            cluster.run(HEALED_MS / 2)
            cluster.end_work()
            cluster.run(HEALED_MS / 2)
            cluster.judge()
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises is a finding of this seed
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome.violation = f"{type(error).__name__}: {error} ({where.name}, {where.filename.rpartition('/')[2]})"
    cluster.close()
    outcome.events = world.events
    outcome.faults = faults.count + sum(rare.count.values())
    outcome.elections = len(cluster.invariants.leaders)
    outcome.committed = cluster.invariants.committed_end
    outcome.answered = cluster.workload.answered
    outcome.acked = len(cluster.records.acked)
    outcome.unclean = cluster.replicas.unclean_elections
    outcome.trace = world.trace
    outcome.work = {
        **cluster.loads.done,
        **cluster.groups.done,
        "transactions": len(cluster.transactions.committed),
        **rare.count,
    }
    return outcome


def _directory(node_id: NodeId) -> Uuid:
    return Uuid(bytes([0x40 + node_id]) * 16)


def _address(node_id: NodeId) -> Address:
    return Address(_host(node_id), 9093)


def _endpoints(node_id: NodeId) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint("CONTROLLER", _host(node_id), 9093),)


def _host(node_id: NodeId) -> str:
    return f"10.0.0.{node_id}"


@cache
def _rules() -> BrokerConfig:
    return load(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/data",
        }
    )


@cache
def _bootstrap() -> tuple[Message, ...]:
    return tuple(bootstrap_records(LATEST_METADATA_VERSION, default_levels(LATEST_METADATA_VERSION)))
