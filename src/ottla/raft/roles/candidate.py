"""A voter that stands for election in its epoch. Its own vote is on disk before it requests votes."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId
from ottla.raft.quorum_state import QuorumState
from ottla.raft.roles.ballot import Ballot
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Candidate:
    epoch: int
    voted: ReplicaKey
    """Itself."""
    ballot: Ballot
    deadline_ms: float = 0.0
    leader_id: NodeId = NO_NODE
    backing_off: bool = False
    """The election is lost; at the deadline the voter sends a pre-vote again."""

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, NO_NODE, self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return up_to_date if pre_vote else self.voted.matches(candidate)
