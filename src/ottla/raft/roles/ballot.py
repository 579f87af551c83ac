"""The votes of an election: the voters, and which of them granted or rejected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.model.ids import NodeId


@dataclass(slots=True)
class Ballot:
    voters: frozenset[NodeId]
    granted: set[NodeId] = field(default_factory=set)
    rejected: set[NodeId] = field(default_factory=set)

    @classmethod
    def among(cls, voters: Iterable[NodeId], own_id: NodeId) -> Ballot:
        """A new election with the vote of the candidate itself."""
        return cls(frozenset(voters), {own_id})

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def won(self) -> bool:
        return len(self.granted & self.voters) >= self.majority

    @property
    def lost(self) -> bool:
        return len(self.voters) - len(self.rejected & self.voters) < self.majority

    def open(self) -> list[NodeId]:
        """The voters without a response."""
        return sorted(self.voters - self.granted - self.rejected)

    def count(self, voter: NodeId, *, granted: bool) -> None:
        (self.granted if granted else self.rejected).add(voter)
