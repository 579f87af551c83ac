"""A voter that sends a pre-vote before an election (KIP-996): its durable state does not change."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId
from ottla.raft.config import Address
from ottla.raft.quorum_state import QuorumState
from ottla.raft.roles.ballot import Ballot
from ottla.raft.roles.unattached import may_vote_for
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Prospective:
    epoch: int
    ballot: Ballot
    leader_id: NodeId = NO_NODE
    leader: Address | None = None
    """The silent leader: the voter follows it again if the other voters still fetch from it."""
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        if pre_vote:
            return up_to_date
        return may_vote_for(self.voted, self.leader_id, candidate, up_to_date=up_to_date)
