"""What members of a share group got and acknowledged, and what therefore must hold. No I/O and no time.

A delivery counts against a promise only if its broker leads the partition in the newest epoch. A leader that has not yet
learned of its successor gives out records from its own memory, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.ids import NodeId
from ottla.replication.fetch_session import Key
from ottla.simulation.invariants import Violation

DELIVERY_LIMIT = 5
LOCK_MS = 1_000.0
ACCEPT, RELEASE, REJECT = 1, 2, 3


class Lock(NamedTuple):
    """A member has a record until `until_ms` at least."""

    member: str
    broker: NodeId
    leader_epoch: int
    until_ms: float


class Delivery(NamedTuple):
    """One answer to a share fetch."""

    member: str
    broker: NodeId
    leader_epoch: int
    """The newest epoch of the partition at the request and at the answer; -1 if its leader is a different broker."""
    sent_ms: float
    received_ms: float


@dataclass(slots=True)
class Shared:
    """One record of a share-partition."""

    deliveries: int = 0
    """The highest delivery count that a member has seen."""
    released: tuple[int, float] = (0, 0.0)
    """The delivery count that an acknowledged release has stored, and when."""
    settled_ms: float | None = None
    """When an accept or a reject was acknowledged."""
    is_settled: bool = False
    """Accepted or rejected, with or without a clear answer."""
    lock: Lock | None = None


class ShareLedger:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: dict[Key, dict[int, Shared]] = {}
        self.lost_fetches: dict[Key, int] = {}
        """Share fetches without an answer: each may have cost every record of the partition a delivery."""
        self.void: set[Key] = set()

    def shared(self, key: Key, offset: int) -> Shared:
        return self.records.setdefault(key, {}).setdefault(offset, Shared())

    def delivered(self, key: Key, offset: int, count: int, delivery: Delivery) -> None:
        record = self.shared(key, offset)
        if key not in self.void:
            self._check(key, offset, count, delivery, record)
        record.deliveries = max(record.deliveries, count)
        record.lock = Lock(delivery.member, delivery.broker, delivery.leader_epoch, delivery.sent_ms + LOCK_MS)

    def _check(self, key: Key, offset: int, count: int, delivery: Delivery, record: Shared) -> None:
        where = f"group {self.group_id}: record {offset} of partition {key[1]}"
        if not 1 <= count <= DELIVERY_LIMIT:
            raise Violation(f"{where} is delivered for the {count}th time; the limit is {DELIVERY_LIMIT}")
        if delivery.leader_epoch < 0:
            return
        if record.settled_ms is not None and record.settled_ms < delivery.sent_ms:
            raise Violation(f"{where} was accepted or rejected, and is delivered again to {delivery.member}")
        stored, released_ms = record.released
        if count <= stored and released_ms < delivery.sent_ms:
            raise Violation(f"{where} was released after delivery {stored}, and its next delivery is number {count}")
        lock = record.lock
        if (
            lock is not None
            and lock.member != delivery.member
            and delivery.received_ms < lock.until_ms
            and (lock.broker, lock.leader_epoch) == (delivery.broker, delivery.leader_epoch)
        ):
            raise Violation(
                f"{where} goes to {delivery.member}, and {lock.member} has it until {lock.until_ms:.0f} at least"
            )

    def acknowledged(self, key: Key, offset: int, kind: int, count: int, now_ms: float) -> None:
        """The broker has stored what the member did with the record of delivery `count`."""
        record = self.shared(key, offset)
        if kind == RELEASE:
            record.released = (count, now_ms)
        else:
            record.settled_ms = now_ms
            record.is_settled = True

    def unlocked(self, member: str, keys: Iterable[Key]) -> None:
        """The member's records may go to other members: its session or its process has ended."""
        for key in keys:
            for record in self.records.get(key, {}).values():
                if record.lock is not None and record.lock.member == member:
                    record.lock = None

    def all_settled(self, key: Key, offsets: Iterable[int]) -> None:
        """At the end: every record was accepted or rejected, or has used up its deliveries."""
        if key in self.void:
            return
        for offset in sorted(offsets):
            record = self.shared(key, offset)
            uncertain = record.deliveries + self.lost_fetches.get(key, 0)
            if not record.is_settled and uncertain < DELIVERY_LIMIT:
                raise Violation(
                    f"group {self.group_id}: record {offset} of partition {key[1]} of {key[0]!r} was delivered "
                    f"{record.deliveries} times, and no member could accept the record"
                )
