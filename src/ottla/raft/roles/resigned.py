"""The former leader of the epoch: it stepped down, or it was restarted.

It grants no vote in this epoch and never leads the epoch again: the other voters may have records of the epoch that this
replica lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.model.ids import NodeId
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey


@dataclass(slots=True)
class Resigned:
    epoch: int
    leader_id: NodeId
    """Itself."""
    deadline_ms: float = 0.0
    unaware: set[NodeId] = field(default_factory=set)
    """Voters that have not acknowledged EndQuorumEpoch."""
    successors: tuple[ReplicaKey, ...] = ()
    """The other voters, the most advanced first."""
    voted: ReplicaKey | None = None

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.leader_id, None)

    def grants(self, _candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date
