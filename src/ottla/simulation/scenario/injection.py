"""Carries the faults of a scenario out at their times, and records each fault with the nodes that it hit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.metadata.image import MetadataImage
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.simulation.clients import CLIENT_NODE
from ottla.simulation.scenario.keys import KINDS
from ottla.simulation.scenario.nodes import SYNC_MS, ScenarioNode
from ottla.simulation.scenario.targets import FaultTarget, parse_partition, parse_target
from ottla.simulation.scenario.values import time_text

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.clients import Clients
    from ottla.simulation.network import FakeNetwork
    from ottla.simulation.scenario.facts import Facts
    from ottla.simulation.scenario.plan import FaultPlan, Scenario
    from ottla.simulation.scenario.recorder import Recorder
    from ottla.simulation.scenario.wires import ScenarioWires
    from ottla.simulation.world import World

PAUSE_STEP_MS = 20.0
"""A pause without an end is prolonged in such steps, so that it can end at any time."""
_PAUSE_AHEAD_MS = 2.5 * PAUSE_STEP_MS
_PREFERRED, _UNCLEAN = 0, 1
Link = tuple[int, int]


class Injection:
    def __init__(
        self,
        world: World,
        scenario: Scenario,
        nodes: Sequence[ScenarioNode],
        network: FakeNetwork,
        wires: ScenarioWires,
        clients: Clients,
        facts: Facts,
        recorder: Recorder,
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._nodes = nodes
        self._network = network
        self._wires = wires
        self._clients = clients
        self._facts = facts
        self._recorder = recorder
        self._topics = {topic.name: topic for topic in scenario.topics}
        self._cuts: dict[int, set[Link]] = {}
        """The links that each isolation or partition holds back."""
        self._hit: dict[str, list[ScenarioNode]] = {}
        self._pauses: dict[NodeId, int] = {}
        self._numbers = 0
        self._actions: Mapping[str, Callable[[ScenarioNode, FaultPlan], None]] = {
            "kill": lambda node, _: self._down(node, power=False),
            "stop": lambda node, _: self._stop(node),
            "start": lambda node, _: self._start(node),
            "power_cut": lambda node, _: self._down(node, power=True),
            "wipe_disk": lambda node, _: self._wipe(node),
            "pause": lambda node, _: self._pause(node),
            "resume": lambda node, _: self._resume(node),
            "full_disk": lambda node, _: setattr(node.disk, "full", True),
            "failing_disk": lambda node, _: setattr(node.disk, "failing", True),
            "slow_disk": lambda node, fault: setattr(
                node, "flush_ms", (SYNC_MS[0] + fault.delay_ms, SYNC_MS[1] + fault.delay_ms)
            ),
            "mend_disk": lambda node, _: self._mend(node),
            "slow_network": lambda node, fault: self._wires.slow.__setitem__(node.node_id, fault.delay_ms),
            "clock_jump": lambda node, fault: node.jump(fault.by_ms),
        }
        for node in nodes:
            node.on_ended = self._on_ended

    def schedule(self) -> None:
        for fault in self._scenario.faults:
            self._world.call_later(fault.at_ms - self._world.now_ms, lambda fault=fault: self._apply(fault))  # type: ignore[misc]  # the default binds the loop's variable

    def heal(self) -> None:
        """Everything works again, and every node runs."""
        self._note("all faults are healed: links and disks work, nodes that are down start")
        self._mend_links(None)
        for node in self._nodes:
            self._resume(node)
            self._mend(node)
            if node.up and (node.has_failed_directory or node.failure is not None):
                self._down(node, power=False)
            self._start(node)
        self._recorder.look_again()

    # ---------------------------------------------------------------------------------------------------------- targets

    def _apply(self, fault: FaultPlan) -> None:
        if KINDS[fault.kind].target == "partition":
            self._elect(fault)
            return
        nodes = self._resolve(fault.target) if fault.target else list(self._nodes)
        if fault.name:
            self._hit[fault.name] = nodes
        if not nodes:
            self._note(f"fault: {fault.kind} {fault.target}: nothing to hit: no node has this role now")
            return
        self._note(f"fault: {_described(fault, nodes)}", nodes)
        self._carry_out(fault.kind, fault, nodes)

    def _carry_out(self, kind: str, fault: FaultPlan, nodes: list[ScenarioNode]) -> None:
        number = self._numbers = self._numbers + 1
        if kind in {"isolate", "partition"}:
            peers = self._resolve(fault.peer) if fault.peer else []
            self._cuts[number] = _links(fault, nodes, peers, self._nodes)
            self._apply_cuts()
        elif kind == "heal":
            self._mend_links(nodes if fault.target else None)
        else:
            for node in nodes:
                self._actions[kind](node, fault)
        self._recorder.look_again()
        if fault.for_ms is not None and kind == fault.kind:
            self._world.call_later(fault.for_ms, lambda: self._undo(fault, nodes, number))

    def _undo(self, fault: FaultPlan, nodes: list[ScenarioNode], number: int) -> None:
        undo = KINDS[fault.kind].undo
        self._note(f"{undo} {_ids(nodes)}, {time_text(fault.for_ms or 0)} after {fault.kind}", nodes)
        if number in self._cuts:
            del self._cuts[number]
            self._apply_cuts()
            self._recorder.look_again()
        elif undo == "heal":
            for node in nodes:
                self._wires.slow.pop(node.node_id, None)
        else:
            self._carry_out(undo, fault, nodes)

    def _resolve(self, text: str) -> list[ScenarioNode]:
        target = parse_target(text, self._scenario.cluster, self._topics)
        if target.role == "same":
            return self._hit.get(target.name, [])
        if target.role in {"leader", "follower", "followers"}:
            return self._of_partition(target)
        if target.role == "controller":
            active = [node for node in self._nodes if node.runtime is not None and node.runtime.active]
            return active[:1]
        return [
            node
            for node in self._nodes
            if target.role == "all"
            or (target.role == "node" and node.node_id == target.node)
            or (target.role == "brokers" and node.is_broker)
            or (target.role == "controllers" and not node.is_broker)
        ]

    def _of_partition(self, target: FaultTarget) -> list[ScenarioNode]:
        image: MetadataImage | None = self._clients.image
        topic = image.topics_by_name.get(target.topic) if image is not None else None
        registration = topic.partitions.get(target.partition) if topic is not None else None
        if registration is None:
            return []
        nodes = {node.node_id: node for node in self._nodes}
        if target.role == "leader":
            return [nodes[registration.leader]] if registration.leader in nodes else []
        followers = [nodes[broker] for broker in registration.replicas if broker != registration.leader]
        return followers if target.role == "followers" else followers[:1]

    # ------------------------------------------------------------------------------------------------------------- nodes

    def _down(self, node: ScenarioNode, *, power: bool) -> None:
        self._pauses.pop(node.node_id, None)
        node.paused_until = 0.0
        if node.up:
            node.kill(power=power)
            if power:
                self._recorder.lost_power(node.node_id)

    def _stop(self, node: ScenarioNode) -> None:
        if node.up:
            node.when_awake(node.stop)

    def _start(self, node: ScenarioNode) -> None:
        if not node.up:
            node.start()

    def _wipe(self, node: ScenarioNode) -> None:
        self._down(node, power=True)
        node.disk.wipe()
        self._recorder.lost_disk(node.node_id)

    def _pause(self, node: ScenarioNode) -> None:
        number = self._numbers
        if node.up:
            self._pauses[node.node_id] = number
            self._prolong(node, number)

    def _prolong(self, node: ScenarioNode, number: int) -> None:
        if self._pauses.get(node.node_id) == number:
            node.paused_until = self._world.now_ms + _PAUSE_AHEAD_MS
            self._world.call_later(PAUSE_STEP_MS, lambda: self._prolong(node, number))

    def _resume(self, node: ScenarioNode) -> None:
        if self._pauses.pop(node.node_id, None) is not None:
            node.paused_until = self._world.now_ms

    def _mend(self, node: ScenarioNode) -> None:
        node.disk.full = node.disk.failing = False
        node.flush_ms = SYNC_MS

    def _on_ended(self, node: object) -> None:
        """A process that ended by itself stays down."""
        if isinstance(node, ScenarioNode):
            reason = "has shut down" if node.failure == "stopped" else f"ended by itself: {node.failure}"
            self._facts.note(self._world.now_ms, "node", f"{node.title} {reason}", (node.node_id,))
            self._recorder.look_again()

    # ----------------------------------------------------------------------------------------------------------- network

    def _apply_cuts(self) -> None:
        self._network.broken.clear()
        for links in self._cuts.values():
            self._network.broken.update(links)

    def _mend_links(self, nodes: Iterable[ScenarioNode] | None) -> None:
        if nodes is None:
            self._cuts.clear()
            self._wires.slow.clear()
        else:
            ids = {node.node_id for node in nodes}
            for number, links in self._cuts.items():
                self._cuts[number] = {link for link in links if not ids & set(link)}
            for node_id in ids:
                self._wires.slow.pop(node_id, None)
        self._apply_cuts()

    # --------------------------------------------------------------------------------------------------------- elections

    def _elect(self, fault: FaultPlan) -> None:
        topic, partition = parse_partition(fault.target, self._topics)
        kind = _UNCLEAN if fault.kind == "unclean_election" else _PREFERRED
        self._note(f"fault: {fault.kind} of {fault.target}")
        request = ElectLeadersRequest(kind, [TopicPartitions(topic, [partition])], 10_000)
        broker = next((node.node_id for node in self._nodes if node.is_broker and node.up and not node.paused), None)
        if broker is not None:
            self._clients.spawn(self._ask(broker, request))

    async def _ask(self, broker: NodeId, request: ElectLeadersRequest) -> None:
        await self._clients.ask(broker, request)

    def _note(self, text: str, nodes: Sequence[ScenarioNode] = ()) -> None:
        self._facts.note(self._world.now_ms, "fault", text, tuple(node.node_id for node in nodes))


def _links(
    fault: FaultPlan, nodes: Sequence[ScenarioNode], peers: Sequence[ScenarioNode], every: Sequence[ScenarioNode]
) -> set[Link]:
    ids = {node.node_id for node in nodes}
    if fault.kind == "isolate":
        outside = {node.node_id for node in every} - ids
        if fault.clients:
            outside.add(CLIENT_NODE)
    else:
        outside = {node.node_id for node in peers} - ids
    links = {(a, b) for a in ids for b in outside}
    return links if fault.one_way else links | {(b, a) for a, b in links}


def _described(fault: FaultPlan, nodes: Sequence[ScenarioNode]) -> str:
    """The fault with the nodes that it hits."""
    words = [fault.kind, _ids(nodes)]
    if fault.target and not fault.target.startswith(("broker ", "controller ")):
        words.append(f"({fault.target})")
    if fault.peer:
        words.append(f"{'to' if fault.one_way else 'and'} {fault.peer}")
    if fault.kind == "isolate" and not fault.clients:
        words.append("from the other nodes, not from clients")
    if fault.delay_ms:
        words.append(f"by {time_text(fault.delay_ms)}")
    if fault.by_ms:
        words.append(f"by {'-' if fault.by_ms < 0 else '+'}{time_text(abs(fault.by_ms))}")
    if fault.for_ms is not None:
        words.append(f"for {time_text(fault.for_ms)}")
    return " ".join(words)


def _ids(nodes: Sequence[ScenarioNode]) -> str:
    return ", ".join(node.title for node in nodes)
