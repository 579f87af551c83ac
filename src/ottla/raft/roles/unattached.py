"""A voter without a leader that it can fetch from; it may have voted in its epoch."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey


def may_vote_for(voted: ReplicaKey | None, leader_id: NodeId, candidate: ReplicaKey, *, up_to_date: bool) -> bool:
    """A voter votes once in an epoch, repeats that vote on request, and does not vote in an epoch with a leader."""
    if voted is not None:
        return voted.matches(candidate)
    return leader_id == NO_NODE and up_to_date


@dataclass(slots=True)
class Unattached:
    epoch: int
    leader_id: NodeId = NO_NODE
    """The leader before a restart; it still forbids a vote in this epoch."""
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0
    """The time of the pre-vote."""

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return up_to_date
        return may_vote_for(self.voted, self.leader_id, candidate, up_to_date=up_to_date)
