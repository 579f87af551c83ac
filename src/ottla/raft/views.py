"""Values that the quorum returns: committed batches, and the progress of its replicas (DescribeQuorum)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NodeId, Uuid


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed batch of metadata frames; empty frames for a control batch."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    id: NodeId
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The content of a DescribeQuorum response."""

    leader_id: NodeId
    leader_epoch: int
    high_watermark: int
    voters: list[ReplicaProgress]
    observers: list[ReplicaProgress]
