"""The verdict on a run: what became of every record, by partition, with reasons. Everything follows from the facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.simulation.scenario.life import ScenarioCluster
from ottla.simulation.scenario.reasons import Loss, doubled_reason, loss_of, loss_reason

if TYPE_CHECKING:
    from ottla.simulation.scenario.facts import (
        ConsumerFacts,
        Facts,
        FinalLog,
        Interval,
        PartitionFacts,
        SentRecord,
        TopicPartition,
    )
    from ottla.simulation.scenario.plan import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Lost records with one reason."""

    partition: str
    records: tuple[str, ...]
    offsets: tuple[int, ...]
    """-1: no leader appended the record."""
    reason: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubledRecord:
    partition: str
    record: str
    offsets: tuple[int, ...]
    reason: tuple[str, ...]


@dataclass(slots=True)
class PartitionVerdict:
    facts: PartitionFacts
    final: FinalLog
    sent: int = 0
    acknowledged: int = 0
    committed: int = 0
    """Acknowledged records that a leader put below its high watermark."""
    lost: int = 0
    committed_and_lost: int = 0
    doubled: int = 0
    reordered: int = 0
    deleted: int = 0
    """Acknowledged, and removed by retention or compaction."""
    unreachable: int = 0
    """Acknowledged, on the disk of a replica, and the partition has no leader."""
    given_up: int = 0
    """The producer got no acknowledgement in time."""
    surplus: int = 0
    """Stored, although the producer got no acknowledgement."""

    @property
    def unavailable_ms(self) -> float:
        return total_ms(self.facts.unavailable)

    @property
    def below_min_isr_ms(self) -> float:
        return total_ms(self.facts.below_min_isr)

    def elections(self, kind: str) -> int:
        return sum(term.election == kind for term in self.facts.leaderships)


@dataclass(slots=True)
class ConsumerVerdict:
    facts: ConsumerFacts
    lost: int = 0
    """Read, and not in the log at the end."""

    @property
    def repeated(self) -> int:
        return sum(self.facts.read.values()) - len(self.facts.read)


@dataclass(slots=True)
class Verdict:
    scenario: Scenario
    seed: int
    facts: Facts
    partitions: list[PartitionVerdict] = field(default_factory=list)
    lost: list[LostRecords] = field(default_factory=list)
    doubled: list[DoubledRecord] = field(default_factory=list)
    consumers: list[ConsumerVerdict] = field(default_factory=list)

    def total(self, name: str) -> int:
        return sum(int(getattr(partition, name)) for partition in self.partitions)

    @property
    def failed(self) -> bool:
        """Acknowledged records are lost, doubled or out of reach."""
        return bool(self.total("lost") or self.total("doubled") or self.total("unreachable"))


def judge_scenario(scenario: Scenario, seed: int) -> Verdict:
    """Run the scenario with this seed. Raises ScenarioError if its cluster cannot start."""
    cluster = ScenarioCluster(scenario, seed)
    try:
        final_logs = cluster.run()
    finally:
        cluster.close()
    return judge_facts(scenario, seed, cluster.facts, final_logs)


def judge_facts(scenario: Scenario, seed: int, facts: Facts, final_logs: Mapping[TopicPartition, FinalLog]) -> Verdict:
    verdict = Verdict(scenario, seed, facts)
    by_partition: dict[TopicPartition, list[SentRecord]] = {}
    for record in facts.records.values():
        by_partition.setdefault(record.where, []).append(record)
    gone: set[str] = set()
    for where, final in final_logs.items():
        judgement = _Judgement(PartitionVerdict(facts.partitions[where], final), facts)
        judgement.judge(by_partition.get(where, []))
        verdict.partitions.append(judgement.verdict)
        verdict.lost += judgement.losses()
        verdict.doubled += judgement.doubled
        gone |= judgement.gone
    for consumer in facts.consumers:
        verdict.consumers.append(ConsumerVerdict(consumer, len(gone & set(consumer.read))))
    return verdict


class _Judgement:
    """One partition."""

    def __init__(self, verdict: PartitionVerdict, facts: Facts) -> None:
        self.verdict = verdict
        self.doubled: list[DoubledRecord] = []
        self.gone: set[str] = set()
        """Records that were in a log, and are not in the last log."""
        self._facts = facts
        self._offsets: dict[str, list[int]] = {}
        self._last_of_key: dict[bytes, int] = {}
        for stored in verdict.final.records:
            self._offsets.setdefault(stored.id, []).append(stored.offset)
            if stored.key is not None:
                self._last_of_key[stored.key] = stored.offset
        self._losses: dict[tuple[object, ...], tuple[Loss, list[tuple[SentRecord, int]]]] = {}

    def judge(self, records: Sequence[SentRecord]) -> None:
        for record in records:
            self._judge(record)
        self.verdict.reordered = self._reordered()

    def _judge(self, record: SentRecord) -> None:
        verdict, offsets = self.verdict, self._offsets.get(record.id, [])
        verdict.sent += 1
        if len(offsets) > 1:
            verdict.doubled += len(offsets) - 1
            reason = tuple(doubled_reason(record, self._facts))
            title = verdict.facts.title
            self.doubled.append(DoubledRecord(partition=title, record=record.id, offsets=tuple(offsets), reason=reason))
        if not offsets and record.id in self._facts.appends and not self._was_deleted(record):
            self.gone.add(record.id)
        if record.acknowledged is None:
            verdict.given_up += record.failed_ms >= 0
            verdict.surplus += bool(offsets)
            return
        verdict.acknowledged += 1
        was_committed = self._was_committed(record)
        verdict.committed += was_committed
        if offsets:
            return
        if self._was_deleted(record):
            verdict.deleted += 1
        elif verdict.final.leader < 0 and self._has_a_copy(record):
            verdict.unreachable += 1
        else:
            verdict.lost += 1
            verdict.committed_and_lost += was_committed
            self._lose(record)

    def _was_committed(self, record: SentRecord) -> bool:
        appends = self._facts.appends.get(record.id, [])
        return any(self.verdict.facts.was_committed(append.offset, append.epoch) for append in appends)

    def _was_deleted(self, record: SentRecord) -> bool:
        """By retention or DeleteRecords below the log's start, or by compaction because of a later record of its key. A
        record that a later leader began without was lost before.
        """
        final, partition = self.verdict.final, self.verdict.facts
        for append in self._facts.appends.get(record.id, []):
            was_committed = partition.was_committed(append.offset, append.epoch)
            if was_committed and not partition.was_cut_off(append.offset, append.epoch):
                later = self._last_of_key.get(record.key, -1) if record.key is not None else -1
                if append.offset < final.start or (final.compacted and later > append.offset):
                    return True
        return False

    def _has_a_copy(self, record: SentRecord) -> bool:
        end_ms = self._facts.end_ms
        appends = self._facts.appends.get(record.id, [])
        return any(self.verdict.facts.holders(append.offset, append.epoch, end_ms) for append in appends)

    def _lose(self, record: SentRecord) -> None:
        offset = record.acknowledged.offset if record.acknowledged is not None else -1
        if offset < 0:
            appends = self._facts.appends.get(record.id, [])
            offset = appends[-1].offset if appends else -1
        loss = loss_of(record, offset, self._facts)
        self._losses.setdefault(loss.key(), (loss, []))[1].append((record, offset))

    def losses(self) -> list[LostRecords]:
        return [
            LostRecords(
                partition=self.verdict.facts.title,
                records=tuple(record.id for record, _ in records),
                offsets=tuple(offset for _, offset in records),
                reason=tuple(loss_reason(loss, records, self._facts)),
            )
            for loss, records in self._losses.values()
        ]

    def _reordered(self) -> int:
        """Records that the log has behind a later record of their producer; repetitions do not count."""
        count = 0
        seen: set[str] = set()
        highest: dict[str, int] = {}
        for stored in self.verdict.final.records:
            record = self._facts.records.get(stored.id)
            if record is None or stored.id in seen:
                continue
            seen.add(stored.id)
            before = highest.get(record.producer, -1)
            count += record.number < before
            highest[record.producer] = max(before, record.number)
        return count


def total_ms(intervals: Sequence[Interval]) -> float:
    return sum(interval.end_ms - interval.first_ms for interval in intervals)
