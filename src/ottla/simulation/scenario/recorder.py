"""Watches the nodes after every event and records facts: logs that grow or shrink, leaders, ISRs, unavailable times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.metadata.image import RECOVERING, PartitionRegistration
from ottla.model.ids import NO_NODE, NodeId
from ottla.protocol.records import iterate_records
from ottla.simulation.clients import CLIENT_NODE
from ottla.simulation.replica_invariants import batches
from ottla.simulation.scenario.batches import record_id_of
from ottla.simulation.scenario.facts import Interval, LeaderAppend, Leadership, PartitionFacts, ReplicaHistory, Span

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.simulation.network import FakeNetwork
    from ottla.simulation.scenario.facts import Facts
    from ottla.simulation.scenario.nodes import ScenarioNode
    from ottla.simulation.world import World


class Recorder:
    def __init__(self, world: World, network: FakeNetwork, nodes: Sequence[ScenarioNode], facts: Facts) -> None:
        self._world = world
        self._network = network
        self._nodes = nodes
        self._brokers: Mapping[NodeId, ScenarioNode] = {node.node_id: node for node in nodes if node.is_broker}
        self._facts = facts
        self._metadata_offset = -1
        self._by_leader: dict[NodeId, list[PartitionFacts]] = {}
        self._lost_power: dict[NodeId, float] = {}

    def observe(self) -> None:
        for node in self._nodes:
            if node.touched:
                node.touched = False
                self._look_at(node)

    def look_again(self) -> None:
        """After a fault: the network may have changed without an event of a node."""
        for partition in self._facts.partitions.values():
            self._check_availability(partition)

    def lost_power(self, node_id: NodeId) -> None:
        self._lost_power[node_id] = self._world.now_ms

    def lost_disk(self, node_id: NodeId) -> None:
        """Its logs are gone at once."""
        for partition in self._facts.partitions.values():
            replica = partition.replicas.get(node_id)
            if replica is not None and replica.end:
                replica.removed_from(0, self._world.now_ms, "its disk was wiped")

    def finish(self) -> None:
        now_ms = self._facts.end_ms = self._world.now_ms
        for partition in self._facts.partitions.values():
            for interval in (*partition.unavailable, *partition.below_min_isr):
                if interval.end_ms < 0:
                    interval.end_ms = now_ms

    # -------------------------------------------------------------------------------------------------------------- nodes

    def _look_at(self, node: ScenarioNode) -> None:
        publisher = node.publisher
        if publisher is not None and publisher.offset > self._metadata_offset:
            self._metadata_offset = publisher.offset
            for partition in self._facts.partitions.values():
                topic = publisher.image.topics_by_name.get(partition.where[0])
                registration = topic.partitions.get(partition.where[1]) if topic is not None else None
                if topic is not None and registration is not None:
                    partition.topic_id = topic.id
                    self._on_registration(partition, registration)
        if not node.is_broker:
            return
        replicas = node.replicas
        if replicas is not None:
            for partition in self._facts.partitions.values():
                if partition.topic_id is not None:
                    replica = replicas.by_id.get(partition.topic_id, {}).get(partition.where[1])
                    if replica is not None:
                        self._look_at_replica(node, partition, replica)
        for partition in self._by_leader.get(node.node_id, ()):
            self._check_availability(partition)

    def _look_at_replica(self, node: ScenarioNode, partition: PartitionFacts, replica: Partition) -> None:
        history = partition.replicas.get(node.node_id)
        if history is None:
            history = partition.replicas[node.node_id] = ReplicaHistory(node.node_id)
        log = replica.log
        end = log.log_end_offset
        if end != history.end or self._diverged(history, replica):
            self._on_end(node, partition, history, replica)
        if replica.is_leader:
            self._look_at_leader(partition, replica, end)

    def _diverged(self, history: ReplicaHistory, replica: Partition) -> bool:
        """The log was cut and has grown to the same length within one event."""
        log, last = replica.log, history.end - 1
        return last >= log.log_start_offset and history.epoch_at(last) != log.epochs.epoch_for_offset(last)

    def _on_end(
        self, node: ScenarioNode, partition: PartitionFacts, history: ReplicaHistory, replica: Partition
    ) -> None:
        log, now_ms, before = replica.log, self._world.now_ms, history.end
        end = log.log_end_offset
        common = min(end, before)
        while common > log.log_start_offset and history.epoch_at(common - 1) != log.epochs.epoch_for_offset(common - 1):
            common -= 1
        cut_ms = self._lost_power.pop(node.node_id, None)
        if common < before:
            cause = "truncated" if cut_ms is None else f"lost in the power cut at {cut_ms / 1000:.3f} s"
            history.removed_from(common, now_ms, cause)
            text = f"{node.title}: {partition.title} {cause}, log end {before} -> {common}"
            self._facts.note(now_ms, "log", text, (node.node_id,), partition.title)
        first = max(common, log.log_start_offset)
        while first < end:
            epoch = log.epochs.epoch_for_offset(first)
            last = _end_of_epoch(replica, epoch, end)
            history.appended(first, last, epoch, now_ms)
            first = last
        history.end = end
        if any(term.leader == node.node_id for term in partition.leaderships):
            self._on_append(node.node_id, partition, replica, max(common, log.log_start_offset))

    def _on_append(self, broker: NodeId, partition: PartitionFacts, replica: Partition, first: int) -> None:
        """What a broker appended in its own terms; what it fetched later from others is in `appends` already."""
        for header, data, position in batches(replica.log, first, replica.log.log_end_offset):
            term = partition.leadership(header.leader_epoch)
            if term is None or term.leader != broker or header.is_control:
                continue
            for record in iterate_records(data, position):
                appends = self._facts.appends.setdefault(record_id_of(record.value), [])
                if not any((a.epoch, a.offset) == (term.epoch, record.offset) for a in appends):
                    appends.append(LeaderAppend(self._world.now_ms, broker, term.epoch, record.offset))

    def _look_at_leader(self, partition: PartitionFacts, replica: Partition, end: int) -> None:
        term = partition.leadership(replica.leader_epoch)
        if term is not None and term.took_ms < 0:
            term.took_ms, term.start_end = self._world.now_ms, end
            partition.committed_end = min(partition.committed_end, end)
            self._facts.note(self._world.now_ms, "leader", _took_over(partition, term), (term.leader,), partition.title)
            self._check_availability(partition)
        first, high_watermark = partition.committed_end, replica.high_watermark
        while first < high_watermark:
            epoch = replica.log.epochs.epoch_for_offset(first)
            last = min(_end_of_epoch(replica, epoch, high_watermark), high_watermark)
            _extend(partition.committed, first, last, epoch)
            partition.committed_end = first = last

    # ----------------------------------------------------------------------------------------------------------- metadata

    def _on_registration(self, partition: PartitionFacts, registration: PartitionRegistration) -> None:
        if registration.partition_epoch <= partition.partition_epoch:
            return
        now_ms = self._world.now_ms
        partition.partition_epoch = registration.partition_epoch
        terms, isr_before = partition.leaderships, partition.isr_at(now_ms)
        last = terms[-1] if terms else None
        if last is None or last.epoch != registration.leader_epoch or last.leader != registration.leader:
            leader = max(registration.leader, NO_NODE)
            election = _election(partition, registration)
            term = Leadership(registration.leader_epoch, leader, now_ms, registration.isr, election, isr_before)
            terms.append(term)
            if leader == NO_NODE:
                text = f"{partition.title}: no leader; ISR before {_ids(isr_before)}"
                self._facts.note(now_ms, "leader", text, (), partition.title)
            if last is not None:
                self._by_leader.get(last.leader, [partition]).remove(partition)
            self._by_leader.setdefault(leader, []).append(partition)
        if registration.isr != isr_before:
            partition.isrs.append((now_ms, registration.isr))
            if isr_before:
                text = f"{partition.title}: ISR {_ids(isr_before)} -> {_ids(registration.isr)}"
                self._facts.note(now_ms, "isr", text, (), partition.title)
        partition.last_known_leaders = registration.last_known_elr
        small = len(registration.isr) < min(partition.min_isr, len(registration.replicas))
        _switch(partition.below_min_isr, on=small, now_ms=now_ms)
        self._check_availability(partition)

    def _check_availability(self, partition: PartitionFacts) -> None:
        if partition.leaderships:
            _switch(partition.unavailable, on=not self._serves(partition), now_ms=self._world.now_ms)

    def _serves(self, partition: PartitionFacts) -> bool:
        """Clients reach a broker that leads in the newest epoch."""
        term = partition.leaderships[-1]
        node = self._brokers.get(term.leader)
        if node is None or node.paused or node.replicas is None or partition.topic_id is None:
            return False
        links = {(CLIENT_NODE, node.node_id), (node.node_id, CLIENT_NODE)}
        replica = node.replicas.by_id.get(partition.topic_id, {}).get(partition.where[1])
        return (
            not links & self._network.broken
            and replica is not None
            and replica.is_leader
            and replica.leader_epoch == term.epoch
            and not replica.log.log_dir.offline
        )


def _election(partition: PartitionFacts, registration: PartitionRegistration) -> str:
    """A leader that lost its lead in the same batch of metadata stands in `last_known_leaders` alone."""
    if registration.leader < 0:
        return "none"
    if not partition.leaderships:
        return "first"
    before = next((term.leader for term in reversed(partition.leaderships) if term.leader >= 0), NO_NODE)
    if registration.leader_recovery_state == RECOVERING:
        was_leader = registration.leader in (partition.last_known_leaders or (before,))
        return "last leader" if was_leader else "unclean"
    return "again" if before == registration.leader else "clean"


def _took_over(partition: PartitionFacts, term: Leadership) -> str:
    elections = {
        "first": "first leader",
        "clean": f"clean election, ISR before {_ids(term.before)}",
        "unclean": f"UNCLEAN election, ISR before {_ids(term.before)}",
        "last leader": f"the last leader, after an unclean shutdown; ISR before {_ids(term.before)}",
        "again": "leads again",
        "none": "",
    }
    return (
        f"{partition.title}: broker {term.leader} leads in epoch {term.epoch} "
        f"({elections[term.election]}), log end {term.start_end}"
    )


def _end_of_epoch(replica: Partition, epoch: int, end: int) -> int:
    later = [start for number, start in replica.log.epochs.entries if number > epoch]
    return min([*later, end])


def _extend(spans: list[Span], first: int, end: int, epoch: int) -> None:
    if spans and spans[-1].epoch == epoch and spans[-1].end == first:
        spans[-1].end = end
    else:
        spans.append(Span(first, end, epoch))


def _switch(intervals: list[Interval], *, on: bool, now_ms: float) -> None:
    running = bool(intervals) and intervals[-1].end_ms < 0
    if on and not running:
        intervals.append(Interval(now_ms))
    elif running and not on:
        intervals[-1].end_ms = now_ms


def _ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, nodes)) or "(empty)"
