"""The protocol (assignor) of a generation: all members support the protocol, and it has the most votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ottla.coordinator.groups.classic.members import Member, Protocols


class ProtocolCounts:
    """How many members support each protocol, kept as they come and go so that a join costs no walk over them."""

    __slots__ = ("_counts", "_members")

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._members = 0

    def add(self, protocols: Protocols) -> None:
        self._members += 1
        self._counts.update({name for name, _ in protocols})

    def remove(self, protocols: Protocols) -> None:
        self._members -= 1
        self._counts.subtract({name for name, _ in protocols})
        self._counts = +self._counts

    def common(self) -> frozenset[str]:
        """The names that every member supports."""
        return frozenset(name for name, count in self._counts.items() if count == self._members)

    def has_common(self, names: Iterable[str]) -> bool:
        """Whether a member with these protocols shares a protocol with every present member."""
        return any(self._counts[name] == self._members for name in names)


def select_protocol(members: Collection[Member], candidates: frozenset[str]) -> str:
    """Each member votes for the first of its protocols that all members support; a tie goes to the earliest vote."""
    votes = Counter(_vote(member, candidates) for member in members)
    return votes.most_common(1)[0][0]


def _vote(member: Member, candidates: frozenset[str]) -> str:
    for name, _ in member.protocols:
        if name in candidates:
            return name
    raise LookupError(f"member {member.member_id} supports none of the common protocols")
