"""What a replica is in its epoch. One class per role; a transition makes a new one and is persisted before it acts.

A quorum of one voter knows three: it starts unattached, votes for itself as a candidate and leads at once, because its
own vote is the majority.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NO_NODE, NodeId, Uuid
from ottla.raft.quorum_state import QuorumState


@dataclass(frozen=True, slots=True)
class Unattached:
    """Knows an epoch and no leader in it."""

    epoch: int

    def quorum_state(self) -> QuorumState:
        return QuorumState(leader_epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class Candidate:
    epoch: int
    node_id: NodeId
    directory_id: Uuid

    def quorum_state(self) -> QuorumState:
        return QuorumState(
            leader_epoch=self.epoch,
            leader_id=NO_NODE,
            voted_id=self.node_id,
            voted_directory_id=self.directory_id,
        )


@dataclass(slots=True)
class Leader:
    epoch: int
    node_id: NodeId
    epoch_start_offset: int
    high_watermark: int = -1
    """-1 until a record of this epoch is on a majority: an older epoch's records commit only together with it."""

    def quorum_state(self) -> QuorumState:
        return QuorumState(leader_epoch=self.epoch, leader_id=self.node_id)

    def advance(self, durable_end_offset: int) -> bool:
        """Whether the high watermark moved, now that a majority holds everything below `durable_end_offset`."""
        if durable_end_offset <= self.epoch_start_offset or durable_end_offset <= self.high_watermark:
            return False
        self.high_watermark = durable_end_offset
        return True


Role = Unattached | Candidate | Leader
