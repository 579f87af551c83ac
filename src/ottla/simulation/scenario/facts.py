"""The recorded facts of a run: what clients sent and were answered, what each replica held and when, who led. The verdict
reads only these facts.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ottla.model.ids import NodeId, Uuid

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class SendAttempt:
    """A batch on its way to a broker."""

    at_ms: float
    broker: NodeId
    answer: str = ""
    """Empty for success, else the error or why no answer came."""
    answered_ms: float = -1.0


@dataclass(frozen=True, slots=True)
class ProducerAck:
    at_ms: float
    broker: NodeId
    offset: int
    """-1 if the broker does not return the offset."""


@dataclass(slots=True)
class SentRecord:
    producer: str
    number: int
    where: TopicPartition
    key: bytes | None
    acks: int
    created_ms: float
    attempts: list[SendAttempt] = field(default_factory=list)
    """Of its batch, and shared with the other records of that batch."""
    acknowledged: ProducerAck | None = None
    failed_ms: float = -1.0
    failure: str = ""

    @property
    def id(self) -> str:
        return f"{self.producer}:{self.number}"


@dataclass(slots=True)
class Span:
    """Offsets of one leader epoch."""

    first: int
    end: int
    epoch: int


@dataclass(slots=True)
class Holding:
    """One replica had one record, of this leader epoch, from `at_ms` until `removed_ms`."""

    epoch: int
    at_ms: float
    removed_ms: float = -1.0
    cause: str = ""

    def lasted(self, at_ms: float) -> bool:
        return self.at_ms <= at_ms and (self.removed_ms < 0 or at_ms < self.removed_ms)


@dataclass(slots=True)
class ReplicaHistory:
    """What one broker held of one partition, over its lives."""

    broker: NodeId
    end: int = 0
    holdings: dict[int, list[Holding]] = field(default_factory=dict)
    """By offset."""

    def appended(self, first: int, end: int, epoch: int, at_ms: float) -> None:
        for offset in range(first, end):
            self.holdings.setdefault(offset, []).append(Holding(epoch, at_ms))
        self.end = end

    def removed_from(self, offset: int, at_ms: float, cause: str) -> None:
        """Everything from this offset on is gone."""
        for later in range(offset, self.end):
            entries = self.holdings.get(later)
            if entries and entries[-1].removed_ms < 0:
                entries[-1].removed_ms, entries[-1].cause = at_ms, cause
        self.end = offset

    def epoch_at(self, offset: int) -> int:
        entries = self.holdings.get(offset)
        return entries[-1].epoch if entries else -1

    def held(self, offset: int, epoch: int, at_ms: float) -> bool:
        return any(entry.epoch == epoch and entry.lasted(at_ms) for entry in self.holdings.get(offset, ()))

    def removal(self, offset: int, epoch: int) -> Holding | None:
        """How this replica lost the record; None if it has the record, or never had."""
        entries = [entry for entry in self.holdings.get(offset, ()) if entry.epoch == epoch]
        return entries[-1] if entries and entries[-1].removed_ms >= 0 else None


@dataclass(slots=True)
class Leadership:
    """A leader epoch of a partition, from its first appearance in the metadata."""

    epoch: int
    leader: NodeId
    at_ms: float
    isr: tuple[NodeId, ...]
    election: str
    """first, clean, unclean, last leader, again (the same leader, a new epoch) or none (no leader). Kafka marks an
    election as unclean, too, if the last leader comes back after an unclean shutdown (KIP-966)."""
    before: tuple[NodeId, ...] = ()
    """The ISR before."""
    took_ms: float = -1.0
    """When the leader began to serve."""
    start_end: int = -1
    """Its log end at that moment."""


@dataclass(slots=True)
class Interval:
    first_ms: float
    end_ms: float = -1.0


@dataclass(slots=True)
class PartitionFacts:
    where: TopicPartition
    min_isr: int
    topic_id: Uuid | None = None
    partition_epoch: int = -1
    leaderships: list[Leadership] = field(default_factory=list)
    last_known_leaders: tuple[NodeId, ...] = ()
    """The last leader of a partition without a leader, as the metadata name it."""
    isrs: list[tuple[float, tuple[NodeId, ...]]] = field(default_factory=list)
    replicas: dict[NodeId, ReplicaHistory] = field(default_factory=dict)
    committed: list[Span] = field(default_factory=list)
    """Offsets that a leader put below its high watermark."""
    committed_end: int = 0
    """The high watermark of the newest leader, as far as `committed` has it."""
    unavailable: list[Interval] = field(default_factory=list)
    below_min_isr: list[Interval] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.where[0]}-{self.where[1]}"

    def leadership(self, epoch: int) -> Leadership | None:
        return next((term for term in self.leaderships if term.epoch == epoch), None)

    def isr_at(self, at_ms: float) -> tuple[NodeId, ...]:
        index = bisect_right(self.isrs, at_ms, key=lambda entry: entry[0])
        return self.isrs[index - 1][1] if index else ()

    def holders(self, offset: int, epoch: int, at_ms: float) -> list[NodeId]:
        return [broker for broker, replica in sorted(self.replicas.items()) if replica.held(offset, epoch, at_ms)]

    def was_committed(self, offset: int, epoch: int) -> bool:
        return any(span.first <= offset < span.end and span.epoch == epoch for span in self.committed)

    def was_cut_off(self, offset: int, epoch: int) -> bool:
        """Whether a later leader began with a log that ended at or before the offset."""
        return any(term.epoch > epoch and 0 <= term.start_end <= offset for term in self.leaderships)


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the timeline."""

    at_ms: float
    kind: str
    """fault, node, leader, isr, log, client."""
    text: str
    nodes: tuple[NodeId, ...] = ()
    partition: str = ""


@dataclass(frozen=True, slots=True)
class LeaderAppend:
    """A leader appended a record to its log."""

    at_ms: float
    broker: NodeId
    epoch: int
    offset: int


@dataclass(slots=True)
class ConsumerFacts:
    name: str
    group: str
    topic: str
    read: dict[str, int] = field(default_factory=dict)
    """Record -> how often the consumer has read the record."""
    went_back: int = 0
    """How often its position fell, because the log was cut."""


@dataclass(slots=True)
class Facts:
    partitions: dict[TopicPartition, PartitionFacts] = field(default_factory=dict)
    records: dict[str, SentRecord] = field(default_factory=dict)
    appends: dict[str, list[LeaderAppend]] = field(default_factory=dict)
    """By record; several for a record that was sent again."""
    consumers: list[ConsumerFacts] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    end_ms: float = 0.0

    def note(self, at_ms: float, kind: str, text: str, nodes: tuple[NodeId, ...] = (), partition: str = "") -> None:
        self.happenings.append(Happening(at_ms, kind, text, nodes, partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as the log of the last leader has it."""

    offset: int
    epoch: int
    id: str
    key: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """A partition at the end, as a consumer reads it; without a live leader there is nothing to read."""

    leader: int
    start: int
    end: int
    compacted: bool
    records: tuple[StoredRecord, ...] = ()
