"""A voter that fetches from its epoch's leader."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NodeId
from ottla.raft.config import Address
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: NodeId
    leader: Address
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0
    """Every response to a fetch moves the deadline; after the deadline the leader counts as lost."""
    in_touch: bool = False
    """The leader has answered a fetch of this epoch, and no later sign shows its loss."""

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, self.voted)

    def grants(self, _candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """A follower that is in touch with its leader grants no pre-vote (KIP-996)."""
        return pre_vote and up_to_date and not self.in_touch
