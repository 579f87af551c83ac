"""Faults, drawn from the seed: nodes die, hang, lose their disks; links break, clog and lose messages; disks fill up;
voters join and leave meanwhile.

Only observers are wiped. A voter that comes back with its old id and an empty disk has lost its vote, and no algorithm
survives that. With kraft.version 1 a new disk is a new voter: that is the way to replace a disk. All other faults may
hit all nodes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.protocol.generated.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.protocol.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.protocol.primitives import Message
from ottla.simulation.network import FakeNetwork, Weather
from ottla.simulation.whole_node import WholeNode
from ottla.simulation.world import World

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.node import SimulatedNode
    from ottla.simulation.workload import Workload


class Faults:
    def __init__(
        self,
        world: World,
        nodes: Sequence[SimulatedNode],
        network: FakeNetwork,
        workload: Workload,
        end_ms: float,
        on_lost: Callable[[NodeId, bool], None],
    ) -> None:
        """`on_lost` gets a node that lost its unsynced writes, and whether its whole disk is gone."""
        self._world = world
        self._nodes = nodes
        self._network = network
        self._workload = workload
        self._end_ms = end_ms
        self._on_lost = on_lost
        self._kinds: list[Callable[[], None]] = [
            self._kill, self._kill, self._kill, self._kill_leader, self._kill_leader, self._pause, self._pause_leader,
            self._partition, self._partition, self._cut_leader, self._cut_one_way, self._clog, self._weather, self._full,
            self._failing, self._kill_all, self._kill_broker, self._slow_disk, self._resign, self._change_voters,
            self._change_voters, self._wipe_observer,
        ]  # fmt: skip
        self._brokers = [node for node in nodes if isinstance(node, WholeNode) and node.spec.partitions]
        for node in nodes:
            if isinstance(node, WholeNode):
                node.on_ended = self._restart
        if self._brokers:
            self._kinds += [
                self._kill_a_broker, self._kill_a_broker, self._stop_a_broker, self._stop_a_broker, self._pause_a_broker,
                self._cut_power, self._cut_power, self._cut_power, self._cut_broker, self._cut_broker,
            ]  # fmt: skip
        self.count = 0

    def start(self) -> None:
        # Each seed has its own mixture, so that rare kinds meet often in some of them.
        dice = self._world.random
        self._kinds = dice.sample(self._kinds, dice.randint(3, len(self._kinds)))
        if len(self._nodes) == 1:
            links = (self._partition, self._cut_leader, self._cut_broker, self._cut_one_way, self._clog)
            self._kinds = [kind for kind in self._kinds if kind not in links] or [self._kill]
        self._pause_ms = dice.choice([200.0, 700.0, 2_000.0])
        self._world.call_later(dice.uniform(0, 3_000), self._next)

    def _next(self) -> None:
        if self._world.now_ms >= self._end_ms:
            return
        self.count += 1
        self._world.random.choice(self._kinds)()
        self._world.call_later(self._world.random.expovariate(1 / self._pause_ms), self._next)

    def heal(self) -> None:
        """Everything works again and everybody is up."""
        self._network.broken.clear()
        self._network.clogged.clear()
        self._network.weather = Weather()
        for node in self._nodes:
            node.disk.full = node.disk.failing = False
            node.flush_ms = (0.1, 4.0)
            node.paused_until = min(node.paused_until, self._world.now_ms + 100)
            if isinstance(node, WholeNode) and node.up and (node.has_failed_directory or node.failure is not None):
                node.kill(power=False)  # somebody replaces the disk; a controlled shutdown may take a minute
            if not node.up:
                self._start(node)
        for broker in self._workload.brokers:
            broker.alive = True

    # ------------------------------------------------------------------------------------------------------------- nodes

    def _start(self, node: SimulatedNode) -> None:
        if node.up:
            return
        try:
            node.start()
        except OSError:
            node.kill()
            self._world.call_later(500, lambda: self._start(node))

    def start_later(self, node: SimulatedNode, delay_ms: float) -> None:
        self._world.call_later(delay_ms, lambda: self._start(node))

    def _restart(self, node: SimulatedNode) -> None:
        """A supervisor starts a process that has ended."""
        self._world.call_later(self._world.random.uniform(200, 1_000), lambda: self._start(node))

    def _down(self, node: SimulatedNode, longest_ms: float = 4_000) -> None:
        if node.up:
            node.kill()
            self._world.call_later(self._world.random.uniform(5, longest_ms), lambda: self._start(node))

    def _leader(self) -> SimulatedNode | None:
        leaders = [node for node in self._nodes if node.raft is not None and node.raft.is_leader]
        return max(leaders, key=lambda node: node.raft.epoch if node.raft else 0, default=None)

    def _kill(self) -> None:
        self._down(self._world.random.choice(self._nodes))

    def _kill_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            self._down(leader)

    def _kill_all(self) -> None:
        for node in self._nodes:
            self._down(node, 1_000)

    def _pause(self) -> None:
        self._world.random.choice(self._nodes).pause(self._world.random.uniform(50, 5_000))

    def _pause_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            leader.pause(self._world.random.uniform(500, 5_000))

    def _resign(self) -> None:
        leader = self._leader()
        if leader is not None and leader.runtime is not None:
            leader.when_awake(leader.runtime.driver.resign)

    def _wipe_observer(self) -> None:
        node = self._world.random.choice(self._nodes)
        if node.up and not node.spec.config.controller and (not node.spec.partitions or self.in_sync()):
            node.wipe()
            self._on_lost(node.node_id, True)
            self._world.call_later(self._world.random.uniform(5, 2_000), lambda: self._start(node))

    def _change_voters(self) -> None:
        """Ask the leader to add or remove a voter; the leader may refuse."""
        leader = self._leader()
        if leader is None or leader.raft is None or leader.raft.kraft_version < 1:
            return
        config = self._world.random.choice([n for n in self._nodes if n.spec.config.controller]).spec.config
        request: Message
        if leader.raft.voters.get(config.node_id) is not None:
            request = RemoveRaftVoterRequest(config.cluster_id, config.node_id, config.directory_id)
        else:
            listeners = [Listener(e.name, e.host, e.port) for e in config.endpoints]
            request = AddRaftVoterRequest(config.cluster_id, 5_000, config.node_id, config.directory_id, listeners)
        self._world.note(lambda: f"asked of {leader.node_id}: {request!r}")
        leader.receive(request, lambda _response: None)

    def _kill_broker(self) -> None:
        if not self._workload.brokers:
            return
        broker = self._world.random.choice(self._workload.brokers)
        broker.alive = not broker.alive
        if broker.alive:
            broker.restart()

    # ------------------------------------------------------------------------------------------- brokers with partitions

    def _kill_a_broker(self) -> None:
        self._down(self._world.random.choice(self._brokers), 3_000)

    def _pause_a_broker(self) -> None:
        self._world.random.choice(self._brokers).pause(self._world.random.uniform(50, 5_000))

    def _cut_broker(self) -> None:
        """Cut a broker off from all other nodes."""
        node = self._world.random.choice(self._brokers)
        peer_ids = [other.node_id for other in self._nodes if other is not node]
        self._break({link for other in peer_ids for link in ((node.node_id, other), (other, node.node_id))})

    def _stop_a_broker(self) -> None:
        node = self._world.random.choice(self._brokers)
        if node.replicas is None:
            return
        life = node.life
        node.when_awake(node.stop)

        def restart() -> None:
            if node.life == life and node.up:
                node.kill()
            self._start(node)

        self._world.call_later(self._world.random.uniform(3_000, 7_000), restart)

    def _cut_power(self) -> None:
        """Replication does not sync: a power cut is survived if it spares the other replicas and they are in sync.
        Until the broker is in sync again, no other broker may lose its power.
        """
        node = self._world.random.choice(self._brokers)
        if node.up and self.in_sync():
            node.kill(power=True)
            self._on_lost(node.node_id, False)
            self._world.call_later(self._world.random.uniform(5, 2_000), lambda: self._start(node))

    def in_sync(self) -> bool:
        """Every broker is up in its present life, and every partition has all its replicas in its ISR, two at least."""
        publishers = [node.publisher for node in self._nodes if node.publisher is not None]
        if not publishers:
            return False
        image = max(publishers, key=lambda publisher: publisher.offset).image
        for node in self._brokers:
            registration = image.brokers.get(node.node_id)
            if (
                node.replicas is None
                or registration is None
                or registration.fenced
                or registration.epoch != node.replicas.context.broker_epoch
            ):
                return False
        return all(
            set(partition.isr) == set(partition.replicas) and len(partition.replicas) > 1
            for topic in image.topics_by_id.values()
            for partition in topic.partitions.values()
        )

    # ----------------------------------------------------------------------------------------------------------- network

    def _partition(self) -> None:
        """Split the nodes into two sides without a link in between."""
        ids = [node.node_id for node in self._nodes]
        side = set(self._world.random.sample(ids, self._world.random.randint(1, len(ids) - 1)))
        self._break({(a, b) for a in ids for b in ids if (a in side) != (b in side)})

    def _cut_leader(self) -> None:
        leader = self._leader()
        if leader is not None:
            peer_ids = [node.node_id for node in self._nodes if node is not leader]
            self._break({link for other in peer_ids for link in ((leader.node_id, other), (other, leader.node_id))})

    def _cut_one_way(self) -> None:
        a, b = self._world.random.sample([node.node_id for node in self._nodes], 2)
        self._break({(a, b)})

    def _break(self, links: set[tuple[int, int]]) -> None:
        self._world.note(lambda: f"links broken: {sorted(links)}")
        broken = self._network.broken
        broken |= links
        self._world.call_later(self._world.random.uniform(100, 6_000), lambda: broken.difference_update(links))

    def _clog(self) -> None:
        a, b = self._world.random.sample([node.node_id for node in self._nodes], 2)
        self._network.clogged[a, b] = self._world.now_ms + self._world.random.uniform(50, 3_000)

    def _weather(self) -> None:
        dice = self._world.random
        self._network.weather = Weather(
            loss=dice.choice([0.0, 0.02, 0.3]),
            duplication=dice.choice([0.0, 0.1]),
            delay_ms=(0.1, dice.choice([2.0, 20.0, 300.0])),
            slow=dice.choice([0.0, 0.03]),
        )

    # ------------------------------------------------------------------------------------------------------------- disks

    def _full(self) -> None:
        self._bad_disk("full")

    def _failing(self) -> None:
        self._bad_disk("failing")

    def _bad_disk(self, what: str) -> None:
        disk = self._world.random.choice(self._nodes).disk
        setattr(disk, what, True)
        self._world.call_later(self._world.random.uniform(200, 3_000), lambda: setattr(disk, what, False))

    def _slow_disk(self) -> None:
        node = self._world.random.choice(self._nodes)
        node.flush_ms = (50.0, 800.0)

        def recover() -> None:
            node.flush_ms = (0.1, 4.0)

        self._world.call_later(self._world.random.uniform(500, 4_000), recover)
