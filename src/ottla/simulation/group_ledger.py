"""What members of consumer groups did and which answers they got, and what therefore must hold.

No I/O and no time: members report, and a broken promise raises Violation. A partition of a deleted topic and its namesake
have different keys. An answer counts only if its broker leads the group's partition of `__consumer_offsets` in the newest
epoch. A coordinator that has not yet learned of its successor may answer from an old state, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.model.ids import NodeId
from ottla.replication.fetch_session import Key
from ottla.simulation.invariants import Violation

SOME_RECORDS = 20
"""A group that reads so many records has tried to commit many times."""


class AnsweredRequest(NamedTuple):
    """A request and its answer."""

    broker: NodeId
    sent_ms: float
    received_ms: float


class Ownership(NamedTuple):
    """A coordinator's answer by which a member owns a partition."""

    owner: str
    exchange: AnsweredRequest


class Reservation(NamedTuple):
    """A static member is away and keeps its partition."""

    instance: str
    until_ms: float


@dataclass(slots=True)
class Offsets:
    """The committed offset of one partition."""

    acknowledged: int = -1
    tried: set[int] = field(default_factory=set)
    late: list[int] = field(default_factory=list)
    """Commits without a clear answer: one of them may be stored after a later commit."""

    @property
    def floor(self) -> int:
        return min([self.acknowledged, *self.late])


class GroupLedger:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets: dict[Key, Offsets] = {}
        self.delivered: dict[Key, set[int]] = {}
        self.held: dict[Key, dict[str, float]] = {}
        """Partition -> its owners, each with the time at which the owner got it, as the members see it."""
        self.void = False
        """The group's own records were lost by an unclean election: nothing is promised any more."""
        self.commits = 0
        """Acknowledged commits."""
        self._owners: dict[Key, Ownership] = {}
        self._reserved: dict[Key, Reservation] = {}
        self._assigned: dict[tuple[int, Key], str] = {}
        self._generation: tuple[int, float] = (-1, 0.0)
        self._deletions = 0

    def in_life(self, deletions: int) -> None:
        """The group was deleted so often. The next group of the name begins with the first epoch and generation."""
        if deletions > self._deletions:
            self._deletions = deletions
            self._owners.clear()
            self._reserved.clear()
            self._assigned.clear()
            self._generation = (-1, 0.0)

    # -------------------------------------------------------------------------------------------- owners, with epochs

    def granted(self, owner: str, instance: str | None, key: Key, exchange: AnsweredRequest) -> None:
        """The coordinator gives a partition to a member."""
        reservation = self._reserved.pop(key, None)
        if (
            reservation is not None
            and reservation.instance != instance
            and exchange.received_ms < reservation.until_ms
            and not self.void
        ):
            raise Violation(
                f"group {self.group_id}: {owner} gets partition {key[1]} of the static member {reservation.instance}, "
                f"which may come back until {reservation.until_ms:.0f}"
            )
        self.held.setdefault(key, {})[owner] = exchange.received_ms
        self._owners[key] = Ownership(owner, exchange)
        self._offsets(key).acknowledged = self._offsets(key).floor
        self._offsets(key).late.clear()

    def confirmed(self, owner: str, key: Key, exchange: AnsweredRequest) -> None:
        """The coordinator accepts a heartbeat that reports a partition as owned.

        Two owners: the same coordinator has confirmed somebody else meanwhile, and has not fenced this member.
        """
        successor = self._successor(owner, key, exchange)
        if successor is not None:
            raise Violation(
                f"group {self.group_id}: partition {key[1]} has two owners, {successor.owner} since "
                f"{successor.exchange.received_ms:.0f} and {owner} since {self.held[key][owner]:.0f}"
            )
        self._owners[key] = Ownership(owner, exchange)

    def _successor(self, owner: str, key: Key, exchange: AnsweredRequest) -> Ownership | None:
        """The same coordinator gave the partition to a different member, after `owner` got it and before this request."""
        last = self._owners.get(key)
        since_ms = self.held.get(key, {}).get(owner)
        if (
            last is not None
            and last.owner != owner
            and since_ms is not None
            and since_ms < last.exchange.sent_ms
            and last.exchange.received_ms < exchange.sent_ms
            and last.exchange.broker == exchange.broker
            and not self.void
        ):
            return last
        return None

    def may_commit(self, owner: str, key: Key, exchange: AnsweredRequest) -> None:
        """The coordinator accepts a commit of a member. A member that lost the partition to a different member is fenced."""
        successor = self._successor(owner, key, exchange)
        if successor is not None:
            raise Violation(
                f"group {self.group_id}: {owner} commits an offset of partition {key[1]}, which {successor.owner} owns since "
                f"{successor.exchange.received_ms:.0f}"
            )

    def dropped(self, owner: str, keys: Iterable[Key]) -> None:
        """The member has stopped reading these partitions."""
        for key in keys:
            self.held.get(key, {}).pop(owner, None)

    def went_away(self, instance: str, keys: Iterable[Key], until_ms: float) -> None:
        """A static member left for a while (epoch -2); its session lasts until then at least."""
        for key in keys:
            self._reserved[key] = Reservation(instance, until_ms)

    # ------------------------------------------------------------------------------------------ owners, by generations

    def synced(self, owner: str, generation: int, keys: Iterable[Key], received_ms: float) -> None:
        """A member of the classic protocol has its assignment, which is durable."""
        for key in keys:
            assigned = self._assigned.setdefault((generation, key), owner)
            if assigned != owner and not self.void:
                raise Violation(
                    f"group {self.group_id}: generation {generation} gives partition {key[1]} to {assigned} and {owner}"
                )
            self.held.setdefault(key, {})[owner] = received_ms
            self._offsets(key).acknowledged = self._offsets(key).floor
            self._offsets(key).late.clear()
        if generation > self._generation[0]:
            self._generation = (generation, received_ms)

    def beat(self, owner: str, generation: int, sent_ms: float) -> None:
        """The coordinator accepts a heartbeat of this generation."""
        newest, since_ms = self._generation
        if generation < newest and since_ms < sent_ms and not self.void:
            raise Violation(
                f"group {self.group_id}: {owner} of generation {generation} is not fenced in generation {newest}"
            )

    # --------------------------------------------------------------------------------------------------------- offsets

    def floor(self, key: Key) -> int:
        return self._offsets(key).floor

    def trying(self, key: Key, offset: int) -> None:
        self._offsets(key).tried.add(offset)

    def unclear(self, key: Key, offset: int) -> None:
        self._offsets(key).late.append(offset)

    def committed(self, owner: str, key: Key, offset: int, floor_before: int) -> None:
        """A commit was acknowledged; `floor_before` is the floor when its request was sent."""
        self.commits += 1
        offsets = self._offsets(key)
        if offset < floor_before and not self.void:
            raise Violation(
                f"group {self.group_id}: {owner} commits {offset} for partition {key[1]} after {floor_before} was committed"
            )
        concurrent = offsets.floor > floor_before
        offsets.acknowledged = min(offset, offsets.acknowledged) if concurrent else offset

    def fetched(self, key: Key, offset: int, floor_before: int) -> None:
        """The coordinator reports a committed offset, -1 for none."""
        if self.void:
            return
        offsets = self._offsets(key)
        if offset >= 0 and offset not in offsets.tried:
            raise Violation(
                f"group {self.group_id}: partition {key[1]} of {key[0]!r} has offset {offset}, "
                f"and no member has committed that offset: {sorted(offsets.tried)[-5:]}"
            )
        if offset < floor_before:
            raise Violation(
                f"group {self.group_id}: partition {key[1]} had offset {floor_before} committed and goes back to {offset}"
            )

    def _offsets(self, key: Key) -> Offsets:
        return self.offsets.setdefault(key, Offsets())

    # --------------------------------------------------------------------------------------------------------- records

    def polled(self, owner: str, key: Key, position: int, base_offset: int, next_offset: int) -> None:
        """A batch for a position must hold that position: nothing is skipped, nothing is read again."""
        if not base_offset <= position < next_offset:
            raise Violation(
                f"group {self.group_id}: {owner} asks for offset {position} of partition {key[1]} and gets "
                f"{base_offset} to {next_offset - 1}"
            )
        self.delivered.setdefault(key, set()).update(range(position, next_offset))

    def all_read(self, key: Key, offsets: Iterable[int]) -> None:
        """At the end: the group has read every acknowledged record."""
        unread = sorted(set(offsets) - self.delivered.get(key, set()))
        if unread and not self.void:
            raise Violation(
                f"group {self.group_id}: no member reads {len(unread)} records of partition {key[1]} of {key[0]!r}, "
                f"from {unread[0]} on; its owners are {sorted(self.held.get(key, ()))}"
            )

    def any_commit(self) -> None:
        """At the end: members that read commit, too."""
        count = sum(map(len, self.delivered.values()))
        if count >= SOME_RECORDS and not self.commits and not self.void:
            raise Violation(f"group {self.group_id}: {count} records were read, and no commit was ever accepted")

    def one_reader(self, key: Key) -> None:
        """At the end: every partition has an owner."""
        owners = sorted(self.held.get(key, ()))
        if not owners and not self.void:
            raise Violation(f"group {self.group_id}: no member reads partition {key[1]} of {key[0]!r} after healing")
