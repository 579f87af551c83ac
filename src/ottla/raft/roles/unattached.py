"""A voter that knows an epoch but no leader that it can follow; it may have voted in it."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey


def may_vote_for(voted: ReplicaKey | None, leader_id: NodeId, candidate: ReplicaKey, *, up_to_date: bool) -> bool:
    """One vote in an epoch, the same one again when it is asked for again, and none once the epoch has a leader."""
    if voted is not None:
        return voted.matches(candidate)
    return leader_id == NO_NODE and up_to_date


@dataclass(slots=True)
class Unattached:
    epoch: int
    leader_id: NodeId = NO_NODE
    """Known from before a restart; it still forbids a vote in this epoch."""
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0
    """When it asks whether it could win an election."""

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return up_to_date
        return may_vote_for(self.voted, self.leader_id, candidate, up_to_date=up_to_date)
