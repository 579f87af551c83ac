"""A partition on this node: its log, its state, and the waiters for its high watermark.

The high watermark moves only here. For an only replica it follows the log's end; with followers it is the offset that
`LeaderState` counts as committed; a follower uses the leader's value. The state changes only by `partition_states.py`.
Appends check leadership and epoch here; for a read the caller first calls `require_leader` or `require_epoch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import LeaderEpoch, NodeId, Offset, TimestampMs, TopicPartition, Uuid
from ottla.replication import follower_log
from ottla.replication.leader_state import LeaderState, Proposal
from ottla.replication.partition_states import (
    FIRST_STATE,
    PartitionEvent,
    PartitionState,
    metadata_event,
    next_state,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.log.partition_log import PartitionLog
    from ottla.log.producer_state import VerificationGuard
    from ottla.log.results import AppendResult, LogSlice
    from ottla.log.validation import ValidatedBatches
    from ottla.metadata.image import PartitionRegistration
    from ottla.replication.context import ReplicaContext

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_NO_LEADER_EPOCH = -1
_LEADER = PartitionState.LEADER


class Partition:
    __slots__ = (
        "_tail_waiters", "_waiters", "context", "isr", "leader_epoch", "leader_id", "leader_state", "log",
        "partition_epoch", "replicas", "state", "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(
        self, context: ReplicaContext, topic_partition: TopicPartition, topic_id: Uuid, log: PartitionLog
    ) -> None:
        self.context = context
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.state = FIRST_STATE
        self.leader_id: NodeId = -1
        self.leader_epoch: LeaderEpoch = -1
        self.partition_epoch = -1
        self.isr: tuple[NodeId, ...] = ()
        self.replicas: tuple[NodeId, ...] = ()
        self.leader_state: LeaderState | None = None
        """Set while this node leads a partition with followers."""
        self._waiters: dict[object, Callable[[], None]] = {}
        self._tail_waiters: dict[object, Callable[[], None]] = {}

    def apply(self, registration: PartitionRegistration) -> None:
        """Apply leader, replicas and ISR of the metadata."""
        epoch = registration.partition_epoch
        if epoch < self.partition_epoch or (epoch == self.partition_epoch and self.leader_id == registration.leader):
            return
        new_epoch = registration.leader_epoch != self.leader_epoch
        was_leader = self.is_leader
        self.state = next_state(self.state, metadata_event(registration, self.context.node_id))
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = epoch
        self.isr = registration.isr
        self.replicas = registration.replicas
        if not self.is_leader or len(self.replicas) == 1:
            self.leader_state = None
        elif self.leader_state is None or new_epoch:
            self.leader_state = LeaderState(self)
        else:
            self.leader_state.committed_changed()
        if was_leader and (new_epoch or not self.is_leader):
            # Waiters for commits or records of the former epoch check the partition again.
            self._notify()
            self._wake_tail()
        self._advance_high_watermark()

    def isr_altered(
        self, proposal: Proposal, isr: tuple[NodeId, ...], leader_epoch: LeaderEpoch, partition_epoch: int
    ) -> None:
        """The controller has accepted the proposal; its response may arrive before the metadata or after."""
        leader_state = self.leader_state
        if leader_state is None or leader_state.pending is not proposal or leader_epoch != self.leader_epoch:
            return
        if partition_epoch < self.partition_epoch:
            return
        self.isr = isr
        self.partition_epoch = partition_epoch
        leader_state.committed_changed()
        self._advance_high_watermark()

    @property
    def is_leader(self) -> bool:
        return self.state is _LEADER

    @property
    def under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def high_watermark(self) -> Offset:
        return self.log.offsets.high_watermark

    @property
    def high_watermark_lags(self) -> bool:
        """This node is a new leader, and clients may have seen a higher value of the former leader (KIP-207)."""
        return self.leader_state is not None and self.leader_state.epoch_start_offset > self.log.offsets.high_watermark

    def require_epoch(self, current_leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH) -> None:
        """Raises KafkaError unless the client's leader epoch is current: for reads from any replica (KIP-392)."""
        if current_leader_epoch not in (_NO_LEADER_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.state is not _LEADER:
            self.log.log_dir.check_online()

    def require_leader(self, current_leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH) -> None:
        """Raises KafkaError unless this node leads, in the client's leader epoch (KIP-320)."""
        if current_leader_epoch not in (_NO_LEADER_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.state is not _LEADER:
            self.log.log_dir.check_online()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_as_leader(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        required_acks: int = -1,
        version: int = 13,
        verification_guard: VerificationGuard | None = None,
        validated: ValidatedBatches | None = None,
        on_loop: bool = False,
    ) -> AppendResult:
        """Append the batches of a Produce request of `version`; `batches` is patched in place. `validated` and `on_loop`
        have the meaning of the log's parameters.
        """
        if self.state is not _LEADER:
            self.require_leader()
        if required_acks == -1 and len(self.isr) < len(self.replicas):
            self._require_min_isr()
        result = self.log.append_as_leader(
            batches, leader_epoch=self.leader_epoch, now_ms=now_ms, version=version, verification_guard=verification_guard,
            validated=validated, on_loop=on_loop,
        )  # fmt: skip
        if result.flush_due:
            # flush.messages requires a sync before the response; the sync blocks the loop here.
            self.log.flush(now_ms)
        self._advance_high_watermark()
        if self._tail_waiters:
            self._wake_tail()
        return result

    def append_internal(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append a coordinator's own batch (group metadata, offsets, transaction state, markers)."""
        self.require_leader()
        self._require_min_isr()
        result = self.log.append_as_leader(
            batches,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            verification_guard=verification_guard,
            transaction_version=transaction_version,
        )
        self._advance_high_watermark()
        if self._tail_waiters:
            self._wake_tail()
        return result

    def _require_min_isr(self) -> None:
        # At most the number of replicas.
        min_isr = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {set(self.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.log.config.min_insync_replicas} for partition {self.topic_partition}",
            )

    def readable_end(self, isolation_level: int) -> Offset:
        """The offset that a consumer may read up to."""
        return (
            self.log.offsets.last_stable_offset
            if isolation_level == READ_COMMITTED
            else self.log.offsets.high_watermark
        )

    def read(self, offset: Offset, max_bytes: int, *, isolation_level: int, min_one_batch: bool) -> LogSlice:
        """Batches from `offset`, up to `readable_end`. Raises OFFSET_OUT_OF_RANGE outside the log."""
        return self.log.read(
            offset, max_bytes, max_offset=self.readable_end(isolation_level), min_one_batch=min_one_batch
        )

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `epoch` and its end offset; (-1, -1) when that is unknown.

        The log stores an epoch with its first batch, so that a start with 10,000 partitions does not write as many files.
        An epoch without a batch ends where it began, at the log's end.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.offsets.log_end_offset
        latest = self.log.latest_epoch
        is_unwritten = epoch != _NO_LEADER_EPOCH and (latest < 0 or latest < epoch)
        if is_unwritten and epoch < self.leader_epoch and self.is_leader:
            # As if the current epoch were stored at the log's end: the epoch before ends there too.
            return (epoch if latest < 0 else latest), self.log.offsets.log_end_offset
        return self.log.end_offset_for_epoch(epoch) or (-1, -1)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log's start up to `offset` (-1: the high watermark); returns the new low watermark."""
        self.require_leader()
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.advance_log_start_offset(offset)
        self._wake_tail()
        return self.low_watermark

    @property
    def low_watermark(self) -> Offset:
        """The log start offset that all replicas of active brokers have reached."""
        if self.leader_state is None:
            return self.log.offsets.log_start_offset
        brokers = self.context.image.brokers
        return self.leader_state.low_watermark(r for r in self.replicas if r in brokers and not brokers[r].fenced)

    # Followers

    def follower_fetched(
        self, follower_id: NodeId, broker_epoch: int, offset: Offset, log_start_offset: Offset, now_ms: float
    ) -> None:
        """A follower fetches from `offset`: record its progress, propose it for the ISR, move the high watermark."""
        leader_state = self.leader_state
        follower = leader_state.followers.get(follower_id) if leader_state is not None else None
        if leader_state is None or follower is None:
            # The follower may have newer metadata; otherwise the request is wrong.
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"{follower_id} is not a replica of {self.topic_partition}"
            )
        before, before_start = follower.log_end_offset, follower.log_start_offset
        follower.fetched(offset, log_start_offset, broker_epoch, self.log.offsets.log_end_offset, now_ms)
        if leader_state.pending is None and follower_id not in self.isr:
            leader_state.maybe_expand(follower)
        if offset != before:
            self._advance_high_watermark()
        if log_start_offset != before_start and self._waiters:
            self._notify()

    def append_as_follower(self, batches: Buffer, *, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """Append batches of the leader of `leader_epoch`."""
        self.require_following(leader_epoch)
        result = follower_log.append(self.log, batches, leader_epoch, now_ms)
        if result is not None and result.flush_due:
            self.log.flush(now_ms)

    def follow_watermarks(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Apply the leader's high watermark and log start offset, within this log."""
        log, offsets = self.log, self.log.offsets
        if high_watermark > offsets.high_watermark and offsets.advance_high_watermark(high_watermark) and self._waiters:
            self._notify()
        if log_start_offset > offsets.log_start_offset:
            log.advance_log_start_offset(min(log_start_offset, offsets.high_watermark))

    def truncate_by(
        self, epoch: LeaderEpoch, end_offset: Offset, *, leader_epoch: LeaderEpoch, now_ms: TimestampMs
    ) -> None:
        """The logs diverge: the leader's `epoch` ends at `end_offset`."""
        self.require_following(leader_epoch)
        self.log.truncate_to(follower_log.truncation_offset(self.log, epoch, end_offset), now_ms)

    def require_following(self, leader_epoch: LeaderEpoch) -> None:
        if self.leader_epoch != leader_epoch or self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # The high watermark and its waiters

    def _advance_high_watermark(self) -> None:
        if self.leader_state is not None:
            committed = self.leader_state.committed_offset()
            if committed > self.log.offsets.high_watermark:
                self.log.offsets.advance_high_watermark(committed)
                if self._waiters:
                    self._notify()
        elif len(self.isr) == 1 and self.state is _LEADER:
            offsets = self.log.offsets
            end = offsets.log_end_offset
            if end > offsets.high_watermark:
                offsets.advance_high_watermark(end)
                if self._waiters:
                    self._notify()

    def watch_tail(self, key: object, callback: Callable[[], None]) -> None:
        """As `watch`, for a follower: whenever the log grows, its start moves or this node stops leading."""
        self._tail_waiters[key] = callback

    def unwatch_tail(self, key: object) -> None:
        self._tail_waiters.pop(key, None)

    def _wake_tail(self) -> None:
        for key in list(self._tail_waiters):
            callback = self._tail_waiters.get(key)
            if callback is not None:
                callback()

    def when_committed(self, offset: Offset, callback: Callable[[ErrorCode], None]) -> object:
        """Call `callback` once: with NONE when enough replicas have committed the log below `offset`, or with the error.

        Returns the key to `unwatch` when the caller gives up.
        """
        key = object()

        def check() -> None:
            code = self._commit_state(offset)
            if code is not None:
                self.unwatch(key)
                callback(code)

        self.watch(key, check)
        check()
        return key

    def _commit_state(self, offset: Offset) -> ErrorCode | None:
        if self.log.log_dir.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.offsets.high_watermark < offset:
            return None
        leader_state = self.leader_state
        if leader_state is not None and len(leader_state.maximal_isr) < leader_state.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the high watermark moves or the partition stops, until `unwatch(key)`."""
        self._waiters[key] = callback

    def unwatch(self, key: object) -> None:
        self._waiters.pop(key, None)

    def when_high_watermark(self, offset: Offset, callback: Callable[[], None]) -> None:
        """Call `callback` once, as soon as the log below `offset` is committed."""
        if self.high_watermark >= offset:
            callback()
            return
        key = object()

        def check() -> None:
            if self.high_watermark >= offset:
                self.unwatch(key)
                callback()

        self.watch(key, check)

    def _notify(self) -> None:
        # A callback may remove other waiters: a response lets its connection append the next batch, which calls them too.
        for key in list(self._waiters):
            callback = self._waiters.get(key)
            if callback is not None:
                callback()

    def stop(self, event: PartitionEvent) -> None:
        """The replica is removed or its disk failed: every waiter checks the partition again and gets an error."""
        self.state = next_state(self.state, event)
        self.leader_id = -1
        self.leader_state = None
        self._notify()
        self._wake_tail()
        self._waiters.clear()
        self._tail_waiters.clear()
