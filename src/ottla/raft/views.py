"""Values that the quorum returns: committed batches, and the progress of its replicas (DescribeQuorum)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.ids import NodeId, Uuid
from ottla.protocol.records import iterate_records


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed batch. Its bytes are read on request: the active controller has the records of its own batches."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    data: bytes

    @property
    def frames(self) -> list[bytes]:
        """The metadata frames; none for a control batch."""
        return [] if self.is_control else [record.value or b"" for record in iterate_records(self.data)]

    @property
    def frame_count(self) -> int:
        return 0 if self.is_control else self.last_offset - self.base_offset + 1


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
