"""What the clients did and which answers they got, and what therefore must hold for every record that a leader commits.

A committed record must have been sent to this very topic (not to a namesake that was deleted), once and in order where its
producer is idempotent. Deleted records stay deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ottla.model.ids import NodeId
from ottla.protocol.records import BatchHeader
from ottla.replication.fetch_session import Key
from ottla.simulation.invariants import Violation

_OFFSETS = "__consumer_offsets"
"""The coordinator writes each batch of transactional offsets with sequence 0, as Kafka does."""


@dataclass(slots=True)
class Ledger:
    sent: dict[int, Key] = field(default_factory=dict)
    """CRC of a batch -> the partition that it was sent to."""
    asked_to_delete: dict[Key, int] = field(default_factory=dict)
    """The highest offset before which somebody asked to delete."""
    deleted: dict[tuple[NodeId, Key], int] = field(default_factory=dict)
    """The highest low watermark that a leader has acknowledged. Only that leader has synced it: a follower writes its own
    start at the next checkpoint, and a kill before that brings the records back (as with Kafka)."""
    _sequences: dict[tuple[Key, int, int], int] = field(default_factory=dict)
    """Partition, producer and its epoch -> the last sequence that was committed."""

    def on_committed(self, key: Key, where: str, header: BatchHeader) -> None:
        """A batch is committed for the first time."""
        origin = self.sent.get(header.crc)
        if origin is not None and origin != key:
            raise Violation(f"{where}: a record of another topic or partition is committed at {header.base_offset}")
        if header.base_sequence < 0 or header.producer_id < 0 or where.startswith(_OFFSETS):
            return
        producer = (key, header.producer_id, header.producer_epoch)
        last = self._sequences.get(producer)
        if last is not None and header.base_sequence != last + 1:
            what = "doubled or reordered" if header.base_sequence <= last else "lost"
            raise Violation(
                f"{where}: producer {header.producer_id} has sequence {header.base_sequence} at {header.base_offset} "
                f"after {last}: {what}"
            )
        self._sequences[producer] = header.last_sequence

    def on_deleted(self, node: NodeId, key: Key, low_watermark: int) -> None:
        self.deleted[node, key] = max(low_watermark, self.deleted.get((node, key), 0))

    def on_replicas(self, key: Key, replicas: Collection[NodeId]) -> None:
        """A replica that leaves takes its promise along: it may come back with a new log."""
        for place in [place for place in self.deleted if place[1] == key and place[0] not in replicas]:
            del self.deleted[place]

    def on_wiped(self, node: NodeId) -> None:
        for place in [place for place in self.deleted if place[0] == node]:
            del self.deleted[place]

    def check_start(self, node: NodeId, key: Key, where: str, start: int, *, retained: bool) -> None:
        """`retained`: retention may delete records too."""
        deleted = self.deleted.get((node, key), 0)
        if start < deleted:
            raise Violation(f"{where} begins at {start}: records before {deleted} were deleted, and are back")
        if not retained and start > self.asked_to_delete.get(key, 0):
            raise Violation(f"{where} begins at {start}: no client asked to delete so many records")


Keyed = dict[bytes | None, tuple[int, bytes | None]]
"""Key -> offset and value of its last record."""


def check_keyed(where: str, committed_records: dict[int, tuple[bytes | None, bytes | None]], stored: Keyed) -> None:
    """A compacted log has the last value of every key, and no key whose last record is a tombstone."""
    last: Keyed = {}
    for offset in sorted(committed_records):
        key, value = committed_records[offset]
        last[key] = (offset, value)
    for key, (offset, value) in last.items():
        held = stored.get(key)
        if value is None:
            if held is not None and held[1] is not None:
                raise Violation(f"{where}: {key!r} was deleted at {offset}, and {held} is back")
        elif held != (offset, value):
            raise Violation(f"{where}: the last record of {key!r} is at {offset}, but compaction left {held}")
