"""A replica that is not a voter: a broker, or a controller that has not joined. It fetches and never stands for election.

Voters with a newer voter set may still request its vote (KIP-853); the observer then decides as an unattached voter.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId
from ottla.raft.config import Address
from ottla.raft.quorum_state import QuorumState
from ottla.raft.roles.unattached import may_vote_for
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Observer:
    epoch: int
    leader_id: NodeId = NO_NODE
    leader: Address | None = None
    """None while the observer asks the voters in turn."""
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0
    in_touch: bool = False

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return up_to_date and not self.in_touch
        return may_vote_for(self.voted, self.leader_id, candidate, up_to_date=up_to_date)
