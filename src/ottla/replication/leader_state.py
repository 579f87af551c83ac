"""The leader of a partition with followers: their progress, the ISR and its proposal, and the committed offset.

The high watermark counts with the maximal ISR: the ISR and the replicas of the open proposal, which the controller may
have accepted already. One proposal is in flight at a time. Below min.insync.replicas nothing is committed (KIP-966): a
replica that left such an ISR may lead again and must have all committed records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.replication.follower_progress import FollowerProgress

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

_STAY_PENDING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller has newer metadata: its arrival here ends the proposal."""
_REVERT = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})


class Proposal(NamedTuple):
    isr: tuple[NodeId, ...]
    partition_epoch: int
    leader_epoch: int


class LeaderState:
    __slots__ = ("_partition", "epoch_start_offset", "followers", "maximal_isr", "pending")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.epoch_start_offset: Offset = partition.log.offsets.log_end_offset
        """A follower joins the ISR only past this offset: below, records of the epoch before may be missing."""
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.pending: Proposal | None = None
        self.maximal_isr: frozenset[NodeId] = frozenset()
        self.committed_changed()

    def committed_changed(self) -> None:
        """Replicas or ISR have changed, by the metadata or by the controller's response: the open proposal ends."""
        partition = self._partition
        now_ms = partition.context.clock.monotonic_ms()
        lag_ms = partition.context.lag_time_max_ms
        followers = {}
        for replica in partition.replicas:
            if replica != partition.context.node_id:
                # A follower that is not in sync counts as lagging from the start.
                caught_up_ms = now_ms if replica in partition.isr else now_ms - lag_ms - 1
                followers[replica] = self.followers.get(replica) or FollowerProgress(replica, caught_up_ms)
                if replica in self.maximal_isr and replica not in partition.isr:
                    followers[replica].left_isr(caught_up_ms)
        self.followers = followers
        self.pending = None
        self.maximal_isr = frozenset(partition.isr)

    # ---------------------------------------------------------------------------------------------- high watermark

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return min(self._partition.log.config.min_insync_replicas, len(self._partition.replicas))

    def committed_offset(self) -> Offset:
        """The lowest end offset of the maximal ISR and of eligible followers that have caught up."""
        partition = self._partition
        end = lowest = partition.log.offsets.log_end_offset
        if len(partition.isr) < self.min_isr:
            return -1
        now_ms = -1.0
        for follower in self.followers.values():
            offset = follower.log_end_offset
            if offset >= lowest:
                continue
            if follower.id not in self.maximal_isr:
                if now_ms < 0:
                    now_ms = partition.context.clock.monotonic_ms()
                if not follower.is_caught_up(end, now_ms, partition.context.lag_time_max_ms):
                    continue
                if not partition.context.eligible(follower.id, follower.broker_epoch):
                    continue
            lowest = offset
        return lowest

    # ---------------------------------------------------------------------------------------------- the ISR

    def maybe_expand(self, follower: FollowerProgress) -> None:
        partition = self._partition
        if self.pending is not None or follower.id in partition.isr:
            return
        required_offset = max(partition.log.offsets.high_watermark, self.epoch_start_offset)
        if follower.log_end_offset >= required_offset and partition.context.eligible(
            follower.id, follower.broker_epoch
        ):
            self._propose((*partition.isr, follower.id))

    def maybe_shrink(self) -> None:
        """Propose an ISR without followers that lag for replica.lag.time.max.ms. Called on a timer."""
        partition = self._partition
        if self.pending is not None:
            return
        end, now_ms = partition.log.offsets.log_end_offset, partition.context.clock.monotonic_ms()
        lag_ms = partition.context.lag_time_max_ms
        lagging_replicas = {
            replica
            for replica in partition.isr
            if replica in self.followers and not self.followers[replica].is_caught_up(end, now_ms, lag_ms)
        }
        if lagging_replicas:
            self._propose(tuple(replica for replica in partition.isr if replica not in lagging_replicas))

    def _propose(self, isr: tuple[NodeId, ...]) -> None:
        partition = self._partition
        self.pending = Proposal(isr, partition.partition_epoch, partition.leader_epoch)
        self.maximal_isr = frozenset(partition.isr) | frozenset(isr)
        partition.context.propose(partition)

    def epoch_of(self, replica: NodeId) -> int:
        """The broker epoch of a replica in a proposal."""
        if replica == self._partition.context.node_id:
            return self._partition.context.broker_epoch
        follower = self.followers.get(replica)
        return -1 if follower is None else follower.broker_epoch

    def refused(self, proposal: Proposal, code: ErrorCode) -> bool:
        """The controller has refused the proposal. Returns whether to send it again."""
        if self.pending is not proposal or code in _STAY_PENDING:
            return False
        if code in _REVERT:
            self.pending = None
            self.maximal_isr = frozenset(self._partition.isr)
            return False
        return True

    # ---------------------------------------------------------------------------------------------- low watermark

    def low_watermark(self, alive: Iterable[NodeId]) -> Offset:
        """The lowest log start offset of the leader and of the followers that are alive."""
        alive_replicas = set(alive)
        log_start_offsets = [f.log_start_offset for f in self.followers.values() if f.id in alive_replicas]
        return min([self._partition.log.offsets.log_start_offset, *log_start_offsets])
