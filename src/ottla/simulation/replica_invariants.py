"""Invariants of the partitions after every event: the promises of replication.

The truth of a partition is the list of batches that a leader has ever reported as committed. The invariants:

- Every replica agrees with the truth below its own high watermark.
- Every leader has the whole truth.
- The truth holds every batch that was acknowledged to a producer.
- A consumer gets only batches of the truth.

Only one event makes a partition's truth void: an unclean election, recorded in the metadata, of a replica that lost
power since it was last in sync. No topic here allows unclean elections, so that this replica must be the last known
leader of a partition without an ISR (KIP-966).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import RECOVERING, MetadataImage, PartitionRegistration
from ottla.model.ids import NodeId
from ottla.protocol.records import (
    BatchHeader,
    ControlType,
    Record,
    crc_matches,
    iterate_records,
    parse_control_key,
    parse_header,
)
from ottla.replication.fetch_session import Key
from ottla.simulation.invariants import Violation
from ottla.simulation.ledger import Keyed, Ledger, check_keyed
from ottla.simulation.records import Promise, Read

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.partition import Partition
    from ottla.simulation.whole_node import WholeNode

READ_BYTES = 1 << 16
_UNKNOWN_EPOCH = -1
RETENTION_OFF_MS = 3_600_000
"""Topics of a simulation whose retention.ms is larger keep all records."""


@dataclass(slots=True)
class Truth:
    """A partition as it was committed."""

    batches: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Base offset -> (last offset, epoch, CRC)."""
    end: int = 0
    last_epoch: int = -1
    leaders: dict[int, NodeId] = field(default_factory=dict)
    records: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """Of a compacted topic: offset -> key and value. Each replica compacts its own batches, but the records stay."""
    no_values: set[int] = field(default_factory=set)
    """Offsets of control records, and of records of aborted transactions: compaction may remove them."""
    tombstones: Counter[bytes | None] = field(default_factory=Counter)
    """Of a compacted topic: key -> how many tombstones were committed."""
    unclean: bool = False
    _open: dict[int, list[int]] = field(default_factory=dict)
    """Producer -> the records of its open transaction."""

    def add_records(self, header: BatchHeader, records: list[Record]) -> None:
        """Of a compacted topic."""
        self.records.update((r.offset, (r.key, r.value)) for r in records)
        self.tombstones.update(r.key for r in records if r.value is None)
        offsets = [record.offset for record in records]
        if header.is_control:
            self.no_values.update(offsets)
            pending = self._open.pop(header.producer_id, [])
            if parse_control_key(records[0].key)[1] == ControlType.ABORT:
                self.no_values.update(pending)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(offsets)


@dataclass(slots=True)
class _Shown:
    """The state that a replica has shown in this life of its node, or since a reassignment brought it here again."""

    partition: Partition
    high_watermark: int = 0
    end: int = 0
    checked: int = 0
    partition_epoch: int = _UNKNOWN_EPOCH
    led_epoch: int = -1


@dataclass(slots=True)
class ReplicaInvariants:
    nodes: Sequence[WholeNode]
    ledger: Ledger
    truths: dict[Key, Truth] = field(default_factory=dict)
    unclean_elections: int = 0
    reads: list[Read] = field(default_factory=list)
    """The batches that consumers got in this event."""
    _shown: dict[tuple[NodeId, int], dict[Key, _Shown]] = field(default_factory=dict)
    """By node and its life."""
    _ends: dict[tuple[NodeId, Key], int] = field(default_factory=dict)
    """The last end of a replica, also while its node is down."""
    _lossy: set[tuple[NodeId, Key]] = field(default_factory=set)
    """Replicas that lost power and are not known to be in sync again."""
    _lives: dict[NodeId, int] = field(default_factory=dict)
    _registrations: dict[Key, PartitionRegistration] = field(default_factory=dict)
    """The newest that any node has seen."""
    _forbidden: Violation | None = None
    """An election that no setting allows."""

    def on_acked(self, promise: Promise) -> None:
        """The commit came before its acknowledgement; only the truth of a topic deleted at once may miss it."""
        if self.exists(promise.key):
            self.kept(promise)

    def committed_end(self, key: Key) -> int:
        truth = self.truths.get(key)
        return 0 if truth is None else truth.end

    def exists(self, key: Key) -> bool:
        return any(key[0] in node.publisher.image.topics_by_id for node in self.nodes if node.publisher is not None)

    def on_read(self, read: Read) -> None:
        self.reads.append(read)

    def lost_power(self, node_id: NodeId) -> None:
        """Its disk may have less than it showed, until it is in sync again."""
        for place in [place for place in self._ends if place[0] == node_id]:
            del self._ends[place]
            self._lossy.add(place)

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        ids = image.topics_by_id if delta.reloaded else delta.partitions
        for topic_id in ids:
            topic = image.topics_by_id.get(topic_id)
            for index, partition in topic.partitions.items() if topic is not None else ():
                self._on_partition((topic_id, index), partition, image)

    def _on_partition(self, key: Key, partition: PartitionRegistration, image: MetadataImage) -> None:
        self.ledger.on_replicas(key, partition.replicas)
        self._check_election(key, partition)
        if partition.leader_recovery_state == RECOVERING:
            truth = self.truths.setdefault(key, Truth())
            if (partition.leader, key) in self._lossy and not truth.unclean:
                truth.unclean = True
                self.unclean_elections += 1
        elif self._lossy:
            for node in self.nodes:
                registration = image.brokers.get(node.node_id)
                if (
                    node.replicas is None
                    or registration is None
                    or registration.epoch != node.replicas.context.broker_epoch
                ):
                    continue
                if node.node_id in partition.isr:
                    self._lossy.discard((node.node_id, key))

    def _check_election(self, key: Key, partition: PartitionRegistration) -> None:
        """Of two registrations that follow each other."""
        before = self._registrations.get(key)
        if before is not None and partition.partition_epoch <= before.partition_epoch:
            return
        self._registrations[key] = partition
        if before is None or partition.partition_epoch != before.partition_epoch + 1:
            return
        is_unclean = partition.leader_recovery_state == RECOVERING != before.leader_recovery_state
        if is_unclean and (before.isr or before.last_known_elr != (partition.leader,)):
            self._forbidden = Violation(
                f"partition {key[1]} of {key[0]!r}: no setting allows the unclean election of {partition.leader} after {before}"
            )

    def check(self, touched: Sequence[WholeNode]) -> None:
        if self._forbidden is not None:
            raise self._forbidden
        for node in touched:
            replicas = node.replicas
            if replicas is None:
                continue
            if self._lives.get(node.node_id) != node.life and node.publisher is not None:
                self._lives[node.node_id] = node.life
                node.publisher.subscribe(self._on_metadata)
            shown_here = self._shown.get((node.node_id, node.life))
            if shown_here is None:
                shown_here = self._shown_by(node)
                replicas.subscribe(added=lambda _partition: None, removed=partial(self._on_removed, node))
            for topic_id, partitions in replicas.by_id.items():
                for index, partition in partitions.items():
                    key = (topic_id, index)
                    shown = shown_here.get(key)
                    log = partition.log
                    if log.log_dir.offline:
                        self._last_look(node, key, partition)
                        continue
                    if (
                        shown is not None
                        and shown.partition is partition
                        and log.log_end_offset == shown.end
                        and log.high_watermark == shown.high_watermark
                        and (shown.led_epoch == partition.leader_epoch or not partition.is_leader)
                    ):
                        shown.partition_epoch = partition.partition_epoch
                    else:
                        self._check(node, key, partition)
        if self.reads:
            for read in self.reads:
                self._was_committed(read)
            self.reads.clear()

    def _on_removed(self, node: WholeNode, partition: Partition) -> None:
        """In the event that removes a replica, earlier metadata of the same event may have committed its last records."""
        key = (partition.topic_id, partition.topic_partition.partition)
        shown = self._shown_by(node).get(key)
        if not partition.log.log_dir.offline:
            if shown is not None:
                shown.partition_epoch = _UNKNOWN_EPOCH
            self._check(node, key, partition)

    def _last_look(self, node: WholeNode, key: Key, partition: Partition) -> None:
        """In the event that failed its directory, a replica may have committed records before."""
        shown = self._shown_by(node).get(key)
        if shown is not None and shown.partition is partition and partition.log.high_watermark > shown.high_watermark:
            shown.partition_epoch = _UNKNOWN_EPOCH
            self._check(node, key, partition)

    def _shown_by(self, node: WholeNode) -> dict[Key, _Shown]:
        shown = self._shown.get((node.node_id, node.life))
        if shown is None:
            shown = self._shown[node.node_id, node.life] = {}
        return shown

    def _check(self, node: WholeNode, key: Key, partition: Partition) -> None:
        log = partition.log
        shown = self._shown_by(node).get(key)
        if shown is None or shown.partition is not partition:
            shown = self._shown_by(node)[key] = _Shown(partition)
        truth = self.truths.get(key)
        if truth is None:
            truth = self.truths[key] = Truth()
        if partition.is_leader and shown.led_epoch != partition.leader_epoch:
            shown.led_epoch = partition.leader_epoch
            self._elected(node, truth, partition)
        end, high_watermark = log.log_end_offset, log.high_watermark
        if end == shown.end and high_watermark == shown.high_watermark:
            shown.partition_epoch = partition.partition_epoch
            return
        where = f"{partition.topic_partition} on node {node.node_id}"
        if not truth.unclean:
            if high_watermark < shown.high_watermark:
                raise Violation(f"{where}: the high watermark fell from {shown.high_watermark} to {high_watermark}")
            if end < shown.high_watermark:
                raise Violation(f"{where}: truncated to {end}, below its high watermark {shown.high_watermark}")
        if high_watermark > end:
            raise Violation(f"{where}: the high watermark {high_watermark} is past the end {end}")
        self._ends[node.node_id, key] = shown.end = end
        if high_watermark > shown.high_watermark:
            self._committed(node, partition, truth, shown, high_watermark)
        shown.high_watermark = high_watermark
        shown.partition_epoch = partition.partition_epoch

    # ---------------------------------------------------------------------------------------------------------- leaders

    def _elected(self, node: WholeNode, truth: Truth, partition: Partition) -> None:
        epoch = partition.leader_epoch
        where = f"{partition.topic_partition}: node {node.node_id}, leader of epoch {epoch},"
        if truth.leaders.setdefault(epoch, node.node_id) != node.node_id:
            raise Violation(f"{where} is not the only one: {truth.leaders[epoch]}")
        if truth.unclean:
            return
        log = partition.log
        if log.log_end_offset < truth.end:
            raise Violation(f"{where} ends at {log.log_end_offset}, but {truth.end} are committed")
        # Nothing is left to compare when DeleteRecords or retention took the last committed record.
        start = log.log_start_offset
        if start > truth.end:
            raise Violation(f"{where} begins at {start}, but only {truth.end} are committed")
        if start < truth.end and log.epochs.epoch_for_offset(truth.end - 1) != truth.last_epoch:
            raise Violation(f"{where} has another record at {truth.end - 1} than the one that was committed")
        key = (partition.topic_id, partition.topic_partition.partition)
        self.ledger.check_start(node.node_id, key, where, start, retained=is_retained(log))

    # ------------------------------------------------------------------------------------------------------- commitment

    def _committed(
        self, node: WholeNode, partition: Partition, truth: Truth, shown: _Shown, high_watermark: int
    ) -> None:
        where = f"{partition.topic_partition} on node {node.node_id}"
        # One event may change an ISR several times: which of these ISRs committed a record is not visible here.
        same_isr = shown.partition_epoch == partition.partition_epoch
        if high_watermark > truth.end and not truth.unclean and same_isr:
            if not partition.is_leader:
                raise Violation(f"{where}: a follower calls {high_watermark} committed, its leaders only {truth.end}")
            self._replicated(node, partition, high_watermark)
        key = (partition.topic_id, partition.topic_partition.partition)
        for header, data, position in batches(partition.log, shown.checked, high_watermark):
            base = header.base_offset
            entry = (header.last_offset, header.leader_epoch, header.crc)
            compacted = partition.log.config.compact
            if base >= truth.end:
                self.ledger.on_committed(key, where, header)
                truth.batches[base] = entry
                truth.end, truth.last_epoch = entry[0] + 1, entry[1]
                if compacted:
                    truth.add_records(header, list(iterate_records(data, position)))
            elif truth.unclean:
                continue
            elif compacted:
                for record in iterate_records(data, position):
                    committed_record = truth.records.get(record.offset)
                    if committed_record != (record.key, record.value):
                        raise Violation(f"{where}: {record} is called committed, but {committed_record} was")
            elif truth.batches.get(base) != entry:
                raise Violation(f"{where}: {entry} at {base} is called committed, but {truth.batches.get(base)} was")
        shown.checked = high_watermark

    def _replicated(self, node: WholeNode, partition: Partition, high_watermark: int) -> None:
        """All replicas of the ISR have the records that the leader calls committed, and the ISR is large enough."""
        if len(partition.isr) < min(partition.log.config.min_insync_replicas, len(partition.replicas)):
            raise Violation(f"{partition.topic_partition}: committed with an ISR of {partition.isr} only")
        key = (partition.topic_id, partition.topic_partition.partition)
        for replica in partition.isr:
            end = self._ends.get((replica, key))
            if end is not None and end < high_watermark:
                raise Violation(
                    f"{partition.topic_partition}: node {node.node_id} calls {high_watermark} committed, "
                    f"but {replica} of its ISR has only {end}"
                )

    def kept(self, promise: Promise) -> None:
        """A batch that was acknowledged to a producer is part of the truth."""
        truth = self.truths.get(promise.key, Truth())
        committed_entry = truth.batches.get(promise.offset)
        if not truth.unclean and (committed_entry is None or committed_entry[2] != promise.crc):
            raise Violation(f"acknowledged at offset {promise.offset}, but {committed_entry} is committed there")

    def _was_committed(self, read: Read) -> None:
        truth = self.truths.get(read.key, Truth())
        committed_entry = truth.batches.get(read.offset)
        if not truth.unclean and not truth.records and (committed_entry is None or committed_entry[2] != read.crc):
            if not self.exists(read.key):
                return
            raise Violation(f"a consumer got {read} from node {read.broker}, but {committed_entry} is committed there")

    # ----------------------------------------------------------------------------------------------------------- the end

    def whole(self, node_id: NodeId, key: Key, partition: Partition) -> None:
        """A replica has the whole truth."""
        truth = self.truths[key]
        if truth.unclean:
            return
        log, where = partition.log, f"{partition.topic_partition} of node {node_id}"
        self.ledger.check_start(node_id, key, where, log.log_start_offset, retained=is_retained(log))
        stored = list(batches(log, 0, truth.end, check_crcs=True))
        if log.config.compact:
            keyed: Keyed = {}
            for _, data, position in stored:
                records = (r for r in iterate_records(data, position) if r.offset not in truth.no_values)
                keyed.update((r.key, (r.offset, r.value)) for r in records)
            check_keyed(where, {o: r for o, r in truth.records.items() if o not in truth.no_values}, keyed)
            return
        entries = {h.base_offset: (h.last_offset, h.leader_epoch, h.crc) for h, _, _ in stored}
        missing = sorted(
            base
            for base, entry in truth.batches.items()
            if entry[0] >= log.log_start_offset and entries.get(base) != entry
        )
        if missing:
            raise Violation(f"{where}: what was committed at {missing[:5]} is not there")


def is_retained(log: PartitionLog) -> bool:
    return log.config.delete and (log.config.retention_bytes >= 0 or log.config.retention_ms < RETENTION_OFF_MS)


def batches(
    log: PartitionLog, start: int, end: int, *, check_crcs: bool = False
) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """The batches from `start` up to `end`: header, the bytes that hold the batch, and its position there."""
    at = max(start, log.log_start_offset)
    while at < end:
        # Past the checks of `log.read`: a failed directory can still be read here.
        piece = log.segments.read(at, READ_BYTES, end, log.log_end_offset, min_one_batch=True)
        if not piece.length:
            break
        data, position = piece.read(), 0
        while position < len(data):
            header = parse_header(data, position)
            if check_crcs and not crc_matches(data, position, header.size):
                raise Violation(f"{log.topic_partition}: the batch at {header.base_offset} is damaged")
            if header.base_offset >= start:
                yield header, data, position
            at = header.next_offset
            position += header.size
