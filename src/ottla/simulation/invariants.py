"""Invariants after every event: the promises of Raft, of the disk and of the controller.

Each check is cheap because it reads only the changes since the last event. The expected values are kept here, outside
of every node: no restart and no lost disk removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import encode_frame
from ottla.metadata.snapshot import image_records
from ottla.model.ids import NO_NODE, NodeId
from ottla.protocol.records import parse_header
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import load_quorum_state
from ottla.raft.roles import Leader
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import ReplicaKey
from ottla.simulation.node import LOG_DIR, SimulatedNode


class Violation(Exception):
    """A promise was broken."""


@dataclass(slots=True)
class _Seen:
    """The state that a node has shown so far."""

    life: int = -1
    epoch: int = 0
    high_watermark: int = -1
    """The high watermark of this life."""
    highest_committed: int = -1
    """The highest committed offset on the node's disk, over all lives since the last wipe: the node must keep that
    much.
    """
    checked_end: int = 0
    """Its log was compared up to here."""
    checked_last: tuple[int, int] = (-1, -1)
    committed: int = 0
    role: object = None
    snapshots: list[SnapshotId] = field(default_factory=list)
    image_offset: int = -1


@dataclass(slots=True)
class Invariants:
    nodes: Sequence[SimulatedNode]
    leaders: dict[int, NodeId] = field(default_factory=dict)
    """Epoch -> the only node that may lead it."""
    votes: dict[tuple[NodeId, int], ReplicaKey] = field(default_factory=dict)
    batches: dict[tuple[int, int], int] = field(default_factory=dict)
    """(epoch, base offset) -> CRC: a leader writes a place once."""
    committed: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Base offset -> (last offset, epoch, CRC) of batches that any node has seen committed."""
    committed_end: int = 0
    committed_epoch: int = 0
    commits: dict[int, int] = field(default_factory=dict)
    """Epoch of the leader that committed last -> end of the committed records at that time."""
    snapshots: dict[SnapshotId, int] = field(default_factory=dict)
    images: dict[int, int] = field(default_factory=dict)
    _seen: dict[NodeId, _Seen] = field(default_factory=dict)

    def wiped(self, node_id: NodeId) -> None:
        self._seen[node_id] = _Seen()

    def check(self, touched: Sequence[SimulatedNode]) -> None:
        """Check the nodes that the event changed."""
        for node in touched:
            raft = node.raft
            if raft is None:
                continue
            seen = self._seen.get(node.node_id)
            if seen is None:
                seen = self._seen[node.node_id] = _Seen()
            if seen.life != node.life:
                self._new_life(node, raft, seen)
            if raft.fetcher.refusals:
                raise Violation(f"node {node.node_id} refused to remove committed records; no node here asks for that")
            replica = raft.replica
            if replica.role is not seen.role:
                self._epoch(node, raft, seen)
            self._log(node, raft, seen)
            self._disk(node, raft)
            if replica.high_watermark != seen.high_watermark:
                self._high_watermark(node, raft, seen)
            if replica.snapshots.ids != seen.snapshots:
                self._snapshots(node, raft, seen)
            self._image(node, seen)

    def _new_life(self, node: SimulatedNode, raft: RaftNode, seen: _Seen) -> None:
        seen.life, seen.high_watermark, seen.role = node.life, -1, None
        seen.checked_end, seen.checked_last, seen.committed = 0, (-1, -1), 0
        seen.image_offset = -1
        seen.snapshots = []
        if raft.epoch < seen.epoch:
            raise Violation(f"node {node.node_id} came back in epoch {raft.epoch} after {seen.epoch}")

    # --------------------------------------------------------------------------------------------------------- elections

    def _epoch(self, node: SimulatedNode, raft: RaftNode, seen: _Seen) -> None:
        role = raft.role
        seen.role = role
        if role.epoch < seen.epoch:
            raise Violation(f"node {node.node_id} went back from epoch {seen.epoch} to {role.epoch}")
        seen.epoch = role.epoch
        stored = load_quorum_state(node.disk, LOG_DIR)
        acted_state = role.quorum_state()
        if raft.replica.stored is not None and stored != raft.replica.stored:
            raise Violation(f"node {node.node_id} acts on {acted_state}, but its disk has {stored}")
        if stored is not None and stored.leader_epoch > role.epoch:
            raise Violation(f"node {node.node_id} is in epoch {role.epoch}, but its disk has {stored.leader_epoch}")
        if role.voted is not None:
            first = self.votes.setdefault((node.node_id, role.epoch), role.voted)
            if not first.matches(role.voted):
                raise Violation(f"node {node.node_id} voted twice in epoch {role.epoch}: {first}, {role.voted}")
        if isinstance(role, Leader):
            self._elected(node, raft, role)

    def _elected(self, node: SimulatedNode, raft: RaftNode, role: Leader) -> None:
        first = self.leaders.setdefault(role.epoch, node.node_id)
        if first != node.node_id:
            raise Violation(f"epoch {role.epoch} has two leaders, {first} and {node.node_id}")
        # The leader need not have records that later epochs committed: a late vote may still elect a leader of an epoch
        # that a majority has left. Such a leader commits nothing.
        epoch = max((committed_epoch for committed_epoch in self.commits if committed_epoch < role.epoch), default=None)
        if epoch is None:
            return
        end, committed_end = role.epoch_start_offset, self.commits[epoch]
        if end < committed_end:
            raise Violation(
                f"node {node.node_id} leads epoch {role.epoch} from {end}, but {committed_end} are committed"
            )
        has = raft.log.epochs.epoch_at(committed_end - 1)
        latest = raft.snapshots.latest
        covered = latest is not None and latest.end_offset >= committed_end
        if has != epoch and not covered:
            raise Violation(f"node {node.node_id} leads epoch {role.epoch} with another record at {committed_end - 1}")

    # --------------------------------------------------------------------------------------------------------------- log

    def _log(self, node: SimulatedNode, raft: RaftNode, seen: _Seen) -> None:
        end = raft.log.end_offset
        if end < seen.highest_committed or end < seen.high_watermark:
            raise Violation(
                f"node {node.node_id} ends at {end}, but had {seen.highest_committed} committed: it truncated too far"
            )
        if (end, raft.log.epochs.last_epoch()) == seen.checked_last:
            return
        if end < seen.checked_end or raft.log.start_offset > seen.checked_end:
            seen.checked_end = raft.log.start_offset
        seen.checked_last = (end, raft.log.epochs.last_epoch())
        previous = -1
        for header, data in raft.log.batches(max(seen.checked_end - 1, raft.log.start_offset)):
            crc = parse_header(data, 0).crc
            first_crc = self.batches.setdefault((header.leader_epoch, header.base_offset), crc)
            if first_crc != crc:
                raise Violation(
                    f"node {node.node_id} has another batch of epoch {header.leader_epoch} at {header.base_offset}"
                )
            if header.leader_epoch < previous:
                raise Violation(f"node {node.node_id} has epoch {header.leader_epoch} after {previous}")
            previous = header.leader_epoch
        seen.checked_end = end

    def _disk(self, node: SimulatedNode, raft: RaftNode) -> None:
        """Records that a node counts as durable are synced on its disk."""
        log = raft.log
        if raft.replica.durable_end_offset >= log.end_offset and raft.replica.durable_end_offset > log.start_offset:
            segment = log.segments[-1]
            file = node.disk.files.get(segment.file.path)
            if file is None or len(file.synced) < segment.size:
                raise Violation(f"node {node.node_id} counts {log.end_offset} as on disk, but it is not synced")

    # ------------------------------------------------------------------------------------------------------------ commit

    def _high_watermark(self, node: SimulatedNode, raft: RaftNode, seen: _Seen) -> None:
        high_watermark = raft.high_watermark
        if high_watermark < seen.high_watermark:
            raise Violation(f"the high watermark of node {node.node_id} fell to {high_watermark}")
        if high_watermark > raft.log.end_offset:
            raise Violation(f"the high watermark {high_watermark} of node {node.node_id} is past its end")
        role = raft.role
        if isinstance(role, Leader):
            self._majority(node, raft, role, high_watermark)
        self._consistent(node, raft, seen, high_watermark)
        seen.high_watermark = high_watermark
        # A leader may commit records that its followers have on disk before they are on its own disk.
        kept = min(high_watermark, raft.replica.durable_end_offset)
        seen.highest_committed = max(seen.highest_committed, kept)

    def _majority(self, node: SimulatedNode, raft: RaftNode, role: Leader, high_watermark: int) -> None:
        if role.high_watermark == high_watermark and high_watermark <= role.epoch_start_offset:
            raise Violation(f"node {node.node_id} commits {high_watermark} before a record of its epoch {role.epoch}")
        if role.high_watermark != high_watermark:
            return  # it knew that much before it was elected
        epoch = raft.log.epochs.epoch_at(high_watermark - 1)
        have = sum(self._has(other, high_watermark, epoch) for other in self.nodes if self._votes(raft, other))
        needed = len(raft.voters.voters) // 2 + 1
        if have < needed:
            raise Violation(f"node {node.node_id} commits {high_watermark}, which only {have} of {needed} have on disk")
        uncommitted = raft.replica.history.voters_offsets_from(high_watermark)
        if len(uncommitted) > 1:
            raise Violation(f"two voter sets are not committed at the same time: {uncommitted}")

    def _votes(self, raft: RaftNode, other: SimulatedNode) -> bool:
        config = other.spec.config
        return raft.voters.contains(config.node_id, config.directory_id)

    def _has(self, other: SimulatedNode, high_watermark: int, epoch: int) -> bool:
        """Whether the records are on the node's disk. The node may be stopped: a stopped node keeps its records."""
        raft = other.raft
        if raft is None:
            return self._seen.get(other.node_id, _Seen()).checked_last[0] >= high_watermark
        latest = raft.snapshots.latest
        if latest is not None and latest.end_offset >= high_watermark:
            return True
        return (
            raft.replica.durable_end_offset >= high_watermark and raft.log.epochs.epoch_at(high_watermark - 1) == epoch
        )

    def _consistent(self, node: SimulatedNode, raft: RaftNode, seen: _Seen, high_watermark: int) -> None:
        start = max(seen.committed, raft.log.start_offset)
        for header, _ in raft.log.batches(start):
            if header.base_offset < start:
                continue
            if header.last_offset >= high_watermark:
                break
            entry = (header.last_offset, header.leader_epoch, header.crc)
            first_entry = self.committed.setdefault(header.base_offset, entry)
            if first_entry != entry:
                raise Violation(f"node {node.node_id} committed {entry} at {header.base_offset}, others {first_entry}")
            if header.last_offset >= self.committed_end:
                self.committed_end, self.committed_epoch = header.last_offset + 1, header.leader_epoch
        if self.committed_end:
            # A leader commits older records only with a record of its own epoch: the last epoch names the leader.
            self.commits[self.committed_epoch] = self.committed_end
        seen.committed = max(seen.committed, high_watermark)

    # ---------------------------------------------------------------------------------------------- snapshots and images

    def _snapshots(self, node: SimulatedNode, raft: RaftNode, seen: _Seen) -> None:
        ids = seen.snapshots = list(raft.snapshots.ids)
        if isinstance(raft.role, Leader) and raft.fetcher.loaded_snapshot is not None:
            raise Violation(f"leader {node.node_id} loaded a snapshot")
        if raft.log.start_offset > 0 and ids and ids[0].end_offset > raft.log.start_offset:
            raise Violation(f"no snapshot of node {node.node_id} covers what came before {raft.log.start_offset}")
        for snapshot_id in ids:
            if snapshot_id.end_offset > max(raft.high_watermark, 0):
                raise Violation(f"node {node.node_id} has a snapshot of what is not committed: {snapshot_id}")

    def _image(self, node: SimulatedNode, seen: _Seen) -> None:
        publisher = node.publisher
        if publisher is None or publisher.offset == seen.image_offset:
            return
        seen.image_offset = publisher.offset
        if publisher.offset % 16 == 0:  # a sample: to spell a whole image costs more than everything else
            self.same_image(node)
        if publisher.offset % 4 == 0:
            check_partitions(publisher.image)

    def same_image(self, node: SimulatedNode) -> None:
        """The same offset gives the same image on every node, from the log or from a snapshot."""
        publisher = node.publisher
        if publisher is None or publisher.offset < 0 or publisher.image.transaction is not None:
            return
        spelled = hash(tuple(sorted(encode_frame(record, 30) for record in image_records(publisher.image))))
        if self.images.setdefault(publisher.offset, spelled) != spelled:
            raise Violation(f"node {node.node_id} has another image at offset {publisher.offset}")


def check_partitions(image: MetadataImage) -> None:
    """Leader in ISR in replicas, ISR and ELR apart, no fenced leader."""
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            where = f"{topic.name}-{index}"
            if not set(partition.isr) <= set(partition.replicas):
                raise Violation(f"{where}: ISR {partition.isr} is not within the replicas {partition.replicas}")
            if partition.leader != NO_NODE and partition.leader not in partition.isr:
                raise Violation(f"{where}: leader {partition.leader} is not in the ISR {partition.isr}")
            if set(partition.isr) & set(partition.elr):
                raise Violation(f"{where}: ISR {partition.isr} and ELR {partition.elr} overlap")
            leader = image.brokers.get(partition.leader)
            if partition.leader != NO_NODE and (leader is None or leader.fenced):
                raise Violation(f"{where}: leader {partition.leader} is fenced")
