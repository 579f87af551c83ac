"""One partition on this node: its log, its leadership, and those who wait for its high watermark.

The high watermark moves only here. With this node as the only replica it follows the log's end; appends, reads and
offset look-ups check leadership and epoch first, so that no caller has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import LeaderEpoch, NodeId, Offset, TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.log.producer_state import Verification
    from ottla.log.results import AppendResult, LogSlice
    from ottla.metadata.image import PartitionRegistration

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_NO_LEADER_EPOCH = -1


class Partition:
    __slots__ = (
        "_node_id", "_waiters", "isr", "leader_epoch", "leader_id", "log", "partition_epoch",
        "replicas", "topic_id", "topic_partition",
    )  # fmt: skip

    def __init__(self, node_id: NodeId, topic_partition: TopicPartition, topic_id: Uuid, log: PartitionLog) -> None:
        self._node_id = node_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_id: NodeId = -1
        self.leader_epoch: LeaderEpoch = -1
        self.partition_epoch = -1
        self.isr: tuple[NodeId, ...] = ()
        self.replicas: tuple[NodeId, ...] = ()
        self._waiters: dict[object, Callable[[], None]] = {}

    def apply(self, registration: PartitionRegistration) -> None:
        """Take leadership and ISR from the metadata."""
        if registration.partition_epoch < self.partition_epoch:
            return
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.isr = registration.isr
        self.replicas = registration.replicas
        self._advance_high_watermark()

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._node_id

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    def require_leader(self, current_leader_epoch: LeaderEpoch = _NO_LEADER_EPOCH) -> None:
        """KafkaError unless we lead, and at the epoch that the client believes in (KIP-320)."""
        if current_leader_epoch not in (_NO_LEADER_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.leader_id != self._node_id:
            self.log.log_dir.check_online()
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_as_leader(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        required_acks: int = -1,
        version: int = 13,
        guard: Verification | None = None,
    ) -> AppendResult:
        """Append what a Produce request of `version` carries; `batches` is patched in place."""
        self.require_leader()
        if required_acks == -1:
            self._require_min_isr()
        result = self.log.append_as_leader(
            batches, leader_epoch=self.leader_epoch, now_ms=now_ms, version=version, guard=guard
        )
        if result.flush_due:
            # flush.messages asks for a sync before the answer; whoever sets it pays for it here, on the loop.
            self.log.flush(now_ms)
        self._advance_high_watermark()
        return result

    def append_internal(
        self,
        batches: bytearray | memoryview,
        *,
        now_ms: int,
        guard: Verification | None = None,
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
            guard=guard,
            transaction_version=transaction_version,
        )
        self._advance_high_watermark()
        return result

    def _require_min_isr(self) -> None:
        # A topic never needs more replicas in sync than it has.
        wanted = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < wanted:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {set(self.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.log.config.min_insync_replicas} for partition {self.topic_partition}",
            )

    def readable_end(self, isolation_level: int) -> Offset:
        """The offset that a consumer may read up to."""
        return self.log.last_stable_offset if isolation_level == READ_COMMITTED else self.log.high_watermark

    def read(self, offset: Offset, max_bytes: int, *, isolation_level: int, min_one_batch: bool) -> LogSlice:
        """Batches from `offset`, up to what the isolation level allows; OFFSET_OUT_OF_RANGE outside the log."""
        return self.log.read(
            offset, max_bytes, max_offset=self.readable_end(isolation_level), min_one_batch=min_one_batch
        )

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch <= `epoch` and where it ends; (-1, -1) when that is unknown.

        The log learns an epoch with its first batch, so that a start with 10,000 partitions does not write as many
        files; an epoch without a batch ends where it began, at the log's end.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        latest = self.log.latest_epoch
        if latest < epoch < self.leader_epoch and self.is_leader:
            # As if our own epoch stood in the log, at its end: what was before it ends there too.
            return (epoch if latest < 0 else latest), self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch) or (-1, -1)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log's start up to `offset` (-1: the high watermark); the new low watermark."""
        self.require_leader()
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.advance_log_start_offset(offset)
        return self.log.log_start_offset

    # The high watermark and those who wait for it

    def _advance_high_watermark(self) -> None:
        if len(self.isr) == 1 and self.leader_id == self._node_id:
            end = self.log.log_end_offset
            if end > self.log.high_watermark:
                self.log.advance_high_watermark(end)
                if self._waiters:
                    self._notify()

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the high watermark moves or the partition goes away, until `unwatch(key)`."""
        self._waiters[key] = callback

    def unwatch(self, key: object) -> None:
        self._waiters.pop(key, None)

    def when_high_watermark(self, offset: Offset, callback: Callable[[], None]) -> None:
        """Call `callback` once, when everything below `offset` is committed; at once when it already is."""
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
        for callback in list(self._waiters.values()):
            callback()

    def gone(self) -> None:
        """The partition is deleted, moved away or its disk failed: whoever waits must look again and get an error."""
        self.leader_id = -1
        self._notify()
        self._waiters.clear()
