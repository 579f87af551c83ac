"""Why a record was lost or doubled: sentences that are made of recorded facts alone, each with its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.simulation.scenario.plan import ACKS_ALL

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.scenario.facts import Facts, Happening, Leadership, PartitionFacts, SentRecord

MAX_FAULTS_NAMED = 6
_ELECTIONS = {
    "first": "first leader",
    "clean": "clean election",
    "unclean": "UNCLEAN election",
    "last leader": "the last leader, after an unclean shutdown",
    "again": "leads again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The facts of one lost record. Records with the same facts have one reason."""

    partition: PartitionFacts
    broker: NodeId
    acks: int
    epoch: int
    """Leader epoch of the batch; -1 if no broker appended the record."""
    holders: tuple[NodeId, ...]
    """The replicas that had the record when the producer got the acknowledgement."""
    isr: tuple[NodeId, ...]
    successor: int
    """The epoch of the first later leader without the record; -1 if there was none."""

    def key(self) -> tuple[object, ...]:
        return (
            self.partition.where, self.broker, self.acks, self.epoch, self.holders, self.isr, self.successor
        )  # fmt: skip


def loss_of(record: SentRecord, offset: int, facts: Facts) -> Loss:
    """The record is acknowledged, and no log of a leader has the record at the end."""
    partition = facts.partitions[record.where]
    acknowledged = record.acknowledged
    at_ms = acknowledged.at_ms if acknowledged is not None else record.created_ms
    broker = acknowledged.broker if acknowledged is not None else -1
    epoch = next((a.epoch for a in reversed(facts.appends.get(record.id, [])) if a.offset == offset), -1)
    holders = tuple(partition.holders(offset, epoch, at_ms)) if epoch >= 0 else ()
    successor = _successor(partition, offset, epoch, at_ms) if epoch >= 0 else None
    return Loss(
        partition=partition, broker=broker, acks=record.acks, epoch=epoch, holders=holders,
        isr=partition.isr_at(at_ms), successor=-1 if successor is None else successor.epoch,
    )  # fmt: skip


def _successor(partition: PartitionFacts, offset: int, epoch: int, at_ms: float) -> Leadership | None:
    for term in partition.leaderships:
        if term.took_ms >= at_ms and term.epoch > epoch:
            replica = partition.replicas.get(term.leader)
            if replica is None or not replica.held(offset, epoch, term.took_ms):
                return term
    return None


def loss_reason(loss: Loss, records: Sequence[tuple[SentRecord, int]], facts: Facts) -> list[str]:
    """Sentences for records with the same facts, and their offsets."""
    times = [record.acknowledged.at_ms for record, _ in records if record.acknowledged is not None]
    if loss.epoch < 0:
        return _never_appended(loss, records, facts)
    partition = loss.partition
    held = "not replicated" if loss.holders == (loss.broker,) else f"held by {_brokers(loss.holders)}"
    lines = [
        (
            f"acknowledged by leader {loss.broker} (epoch {loss.epoch}) with acks={_acks(loss.acks)} "
            f"at {_between(times)}; ISR {_ids(loss.isr)}; {held} at that time"
        )
    ]
    term = partition.leadership(loss.epoch)
    successor = partition.leadership(loss.successor) if loss.successor >= 0 else None
    until_ms = successor.took_ms if successor is not None else facts.end_ms
    from_ms = term.took_ms if term is not None else 0.0
    lines += _faults(facts.happenings, partition, from_ms, until_ms)
    if successor is not None:
        lines.append(
            f"broker {successor.leader} became leader at {seconds(successor.took_ms)} "
            f"({_ELECTIONS[successor.election]}, epoch {successor.epoch}, ISR before {_ids(successor.before)}) "
            f"with log end {successor.start_end}"
        )
    lines += _removals(loss, records)
    return lines


def _never_appended(loss: Loss, records: Sequence[tuple[SentRecord, int]], facts: Facts) -> list[str]:
    sent = [attempt.at_ms for record, _ in records for attempt in record.attempts]
    lines = [
        (
            f"sent to broker {loss.broker} with acks={_acks(loss.acks)} at {_between(sent)}; "
            "the producer waited for no answer, and no leader appended the records"
        )
    ]
    term = next((t for t in reversed(loss.partition.leaderships) if t.at_ms <= max(sent)), None)
    from_ms = term.at_ms if term is not None else 0.0
    later = [t for t in loss.partition.leaderships if t.at_ms > max(sent) and t.took_ms >= 0]
    lines += _faults(facts.happenings, loss.partition, from_ms, later[0].took_ms if later else max(sent))
    if later:
        lines.append(f"broker {later[0].leader} led from {seconds(later[0].took_ms)} on (epoch {later[0].epoch})")
    return lines


def _faults(happenings: Iterable[Happening], partition: PartitionFacts, from_ms: float, until_ms: float) -> list[str]:
    """The faults of this partition's brokers in the time between."""
    brokers = set(partition.replicas)
    texts = [
        f"{happening.text} at {seconds(happening.at_ms)}"
        for happening in happenings
        if happening.kind in {"fault", "node"}
        and brokers & set(happening.nodes)
        and from_ms <= happening.at_ms <= until_ms
    ]
    if len(texts) > MAX_FAULTS_NAMED:
        return [f"{len(texts) - MAX_FAULTS_NAMED} earlier faults are in the timeline", *texts[-MAX_FAULTS_NAMED:]]
    return texts


def _removals(loss: Loss, records: Sequence[tuple[SentRecord, int]]) -> list[str]:
    """How the replicas that had the records lost them."""
    lines = []
    for broker in loss.holders:
        entries = [loss.partition.replicas[broker].removal(offset, loss.epoch) for _, offset in records]
        removals = [entry for entry in entries if entry is not None]
        if removals:
            causes = sorted({entry.cause for entry in removals})
            times = [entry.removed_ms for entry in removals]
            lines.append(f"broker {broker} removed its copy at {_between(times)} ({', '.join(causes)})")
        if len(removals) < len(entries):
            lines.append(f"broker {broker} has a copy that no leader has")
    return lines


def doubled_reason(record: SentRecord, facts: Facts) -> list[str]:
    """The attempts of a record that the log has more than once, and the appends."""
    lines = []
    for number, attempt in enumerate(record.attempts, 1):
        answer = attempt.answer or "acknowledged"
        when = f" at {seconds(attempt.answered_ms)}" if attempt.answered_ms >= 0 else ""
        lines.append(f"attempt {number} to broker {attempt.broker} at {seconds(attempt.at_ms)}: {answer}{when}")
    lines += [
        f"appended by broker {append.broker} at {seconds(append.at_ms)}, offset {append.offset} (epoch {append.epoch})"
        for append in facts.appends.get(record.id, [])
    ]
    return lines


def seconds(at_ms: float) -> str:
    return f"{at_ms / 1000:.3f} s"


def _between(times: Sequence[float]) -> str:
    first, last = seconds(min(times)), seconds(max(times))
    return first if first == last else f"{first} to {last}"


def _acks(acks: int) -> str:
    return "all" if acks == ACKS_ALL else str(acks)


def _ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, nodes)) or "(empty)"


def _brokers(nodes: Sequence[NodeId]) -> str:
    if not nodes:
        return "no broker"
    return f"broker {nodes[0]} only" if len(nodes) == 1 else f"brokers {_ids(nodes)}"
