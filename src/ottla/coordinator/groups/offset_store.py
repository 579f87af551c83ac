"""The committed offsets of a shard, and the pending offsets of open transactions.

Only replay changes the store. Of two commits for one partition the later *record* wins, even when a transaction that
wrote first commits last. The record's own offset decides, so that compaction does not change the outcome.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition, Uuid
from ottla.protocol.generated.offset_commit_value import OffsetCommitValue


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: Uuid
    record_offset: int

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> CommittedOffset:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )


PartitionOffsets: TypeAlias = dict[int, CommittedOffset]
TopicOffsets: TypeAlias = dict[str, PartitionOffsets]


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, TopicOffsets] = {}
        self._pending: dict[ProducerId, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._open_transactions: dict[str, dict[TopicPartition, set[ProducerId]]] = defaultdict(dict)

    def topics(self, group_id: str) -> TopicOffsets:
        return self._committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.topics(group_id).get(topic, {}).get(partition)

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """All partitions with an offset, committed or pending."""
        for topic, offsets in self.topics(group_id).items():
            for partition in offsets:
                yield TopicPartition(topic, partition)
        for pending in self._open_transactions.get(group_id, ()):
            if self.get(group_id, *pending) is None:
                yield pending

    def group_ids(self) -> Iterator[str]:
        return iter(self._committed)

    def offsets_of(self, names: Mapping[str, object]) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
        """Every offset of the topics of these names: group, partition and offset, committed and pending."""
        for group_id, topics in self._committed.items():
            shared = [name for name in names if name in topics] if len(names) < len(topics) else topics
            for name in shared:
                if name in names:
                    for partition, offset in topics[name].items():
                        yield group_id, TopicPartition(name, partition), offset
        for pending in self._pending.values():
            for (group_id, target), offset in pending.items():
                if target.topic in names:
                    yield group_id, target, offset

    def offsets_at(self, group_id: str, target: TopicPartition) -> set[CommittedOffset]:
        """The committed offset of one partition and those of open transactions: a tombstone removes all of them."""
        committed = self.get(group_id, *target)
        offsets = set() if committed is None else {committed}
        for producer_id in self._open_transactions.get(group_id, {}).get(target, ()):
            offsets.add(self._pending[producer_id][group_id, target])
        return offsets

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Has an open transaction an offset for this partition?"""
        return TopicPartition(topic, partition) in self._open_transactions.get(group_id, ())

    def has_open_transactions(self, group_id: str) -> bool:
        return bool(self._open_transactions.get(group_id))

    def __len__(self) -> int:
        return sum(len(offsets) for topics in self._committed.values() for offsets in topics.values())

    # Replay

    def put(self, group_id: str, target: TopicPartition, offset: CommittedOffset, producer_id: ProducerId) -> None:
        if producer_id == NO_PRODUCER_ID:
            self._commit(group_id, target, offset)
            return
        self._pending.setdefault(producer_id, {})[group_id, target] = offset
        self._open_transactions[group_id].setdefault(target, set()).add(producer_id)

    def remove(self, group_id: str, target: TopicPartition) -> None:
        topics = self._committed.get(group_id)
        if topics is not None and target.topic in topics:
            topics[target.topic].pop(target.partition, None)
            if not topics[target.topic]:
                del topics[target.topic]
            if not topics:
                del self._committed[group_id]
        for producer_id in self._open_transactions.get(group_id, {}).get(target, ()):
            self._pending[producer_id].pop((group_id, target), None)
        self._close(group_id, target)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        for (group_id, target), offset in self._pending.pop(producer_id, {}).items():
            self._open_transactions[group_id][target].discard(producer_id)
            if not self._open_transactions[group_id][target]:
                self._close(group_id, target)
            existing = self.get(group_id, *target)
            if committed and (existing is None or offset.record_offset > existing.record_offset):
                self._commit(group_id, target, offset)

    def _commit(self, group_id: str, target: TopicPartition, offset: CommittedOffset) -> None:
        self._committed.setdefault(group_id, {}).setdefault(target.topic, {})[target.partition] = offset

    def _close(self, group_id: str, target: TopicPartition) -> None:
        transactions = self._open_transactions.get(group_id)
        if transactions is not None:
            transactions.pop(target, None)
            if not transactions:
                del self._open_transactions[group_id]
