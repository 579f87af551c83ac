"""The fetch requests of a follower to a leader, and the handling of the responses. No I/O: a driver sends and receives.

One request is in flight at a time. After a failed fetch, a partition backs off for replica.fetch.backoff.ms. If the
leader has older metadata, the first backoff is 10 ms and doubles. A fenced partition waits until the metadata names a
newer epoch. A response counts only for the epoch and offset of its request.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import LeaderEpoch, NodeId, Offset
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, ReplicaState
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.primitives import DecodeError
from ottla.replication import follower_log
from ottla.replication.fetch_session import FollowerSession, Key

if TYPE_CHECKING:
    from ottla.replication.context import ReplicaContext
    from ottla.replication.partition import Partition
    from ottla.replication.throttle import Throttle

log = get_logger(__name__)

_NEVER_MS = inf
_QUIET = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Errors that end when the metadata arrives; they are logged at debug level."""
_UNAWARE = _QUIET - {ErrorCode.FENCED_LEADER_EPOCH}
"""The leader has older metadata. Producers with acks=all wait for this follower, so the backoff is short."""
FIRST_BACKOFF_MS = 10.0


@dataclass(slots=True, kw_only=True)
class FetcherSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000


class FollowedPartition:
    """A partition that this fetcher follows in one leader epoch."""

    __slots__ = (
        "asked_offset",
        "backoff_until_ms",
        "leader_epoch",
        "log_prepared",
        "next_backoff_ms",
        "out_of_range",
        "partition",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.backoff_until_ms = 0.0
        self.next_backoff_ms = FIRST_BACKOFF_MS
        """The backoff after the next refusal of a leader with older metadata."""
        self.asked_offset: Offset = -1
        self.log_prepared = False
        """`follower_log.begin` has run: the log holds only records that it may keep."""
        self.out_of_range = False
        """The leader's log does not cover this log's end: `ReplicaFetcher.on_offsets` resolves it."""


class ReplicaFetcher:
    def __init__(
        self, context: ReplicaContext, source_id: NodeId, settings: FetcherSettings, throttle: Throttle | None = None
    ) -> None:
        self._context = context
        self.source_id = source_id
        self.settings = settings
        self._throttle = throttle
        self._session = FollowerSession()
        self.followed: dict[Key, FollowedPartition] = {}

    # ---------------------------------------------------------------------------------------------- which partitions

    def add(self, partition: Partition) -> None:
        """Follow a partition in its current leader epoch."""
        key = (partition.topic_id, partition.topic_partition.partition)
        current = self.followed.get(key)
        if current is not None and current.leader_epoch == partition.leader_epoch and current.partition is partition:
            return
        followed = self.followed[key] = FollowedPartition(partition)
        self._prepare_log(followed)

    def _prepare_log(self, followed: FollowedPartition) -> None:
        """Once in an epoch, before the first fetch. A truncation that the disk refuses is retried later."""
        try:
            follower_log.begin(followed.partition.log, self._context.clock.time_ms())
            followed.log_prepared = True
        except KafkaError as error:
            log.error("follower.failed", partition=str(followed.partition.topic_partition), reason=error.message)
            self._back_off(followed)

    def remove(self, partition: Partition) -> None:
        self.followed.pop((partition.topic_id, partition.topic_partition.partition), None)

    # ---------------------------------------------------------------------------------------------- asking

    def request(self) -> FetchRequest | None:
        """The next fetch, or None while no partition is due (`rest_ms` returns for how long)."""
        now_ms = self._context.clock.monotonic_ms()
        partitions: dict[Key, FetchPartition] = {}
        for key, followed in list(self.followed.items()):
            if followed.backoff_until_ms > now_ms or followed.out_of_range or self._throttled(followed.partition):
                continue
            if not followed.log_prepared:
                self._prepare_log(followed)
                if not followed.log_prepared:
                    continue
            partition_log = followed.partition.log
            followed.asked_offset = partition_log.offsets.log_end_offset
            partitions[key] = FetchPartition(
                partition=key[1],
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=followed.asked_offset,
                last_fetched_epoch=partition_log.epochs.latest_epoch,
                log_start_offset=partition_log.offsets.log_start_offset,
                partition_max_bytes=self.settings.partition_max_bytes,
            )
        if not partitions and self._session.id == 0:
            return None
        topics, forgotten = self._session.update(partitions)
        if not partitions:
            self._session.reset()
            return None
        context, settings = self._context, self.settings
        return FetchRequest(
            replica_state=ReplicaState(context.node_id, context.broker_epoch),
            max_wait_ms=self._longest_wait_ms(now_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _longest_wait_ms(self, now_ms: float) -> int:
        """A partition in backoff must not wait for the long poll of the other partitions."""
        rests = (f.backoff_until_ms - now_ms for f in self.followed.values() if f.backoff_until_ms > now_ms)
        return ceil(min(self.settings.max_wait_ms, min(rests, default=_NEVER_MS)))

    def _throttled(self, partition: Partition) -> bool:
        """Whether the partition waits for the throttle: it is not in sync, and the rate is exceeded."""
        throttle = self._throttle
        return (
            throttle is not None
            and throttle.exceeded()
            and self._context.node_id not in partition.isr
            and throttle.applies(partition)
        )

    def rest_ms(self) -> float:
        """The time until a partition may be due for a fetch."""
        now_ms = self._context.clock.monotonic_ms()
        wakes = [f.backoff_until_ms for f in self.followed.values() if not f.out_of_range]
        return max(min(wakes, default=_NEVER_MS) - now_ms, 0.0)

    # ---------------------------------------------------------------------------------------------- the answer

    def on_failure(self) -> None:
        """The request failed: reset the session; all partitions back off."""
        self._session.reset()
        until_ms = self._context.clock.monotonic_ms() + self.settings.backoff_ms
        for followed in self.followed.values():
            followed.backoff_until_ms = max(followed.backoff_until_ms, until_ms)

    def on_response(self, response: FetchResponse) -> None:
        if response.error_code:
            code = ErrorCode(response.error_code)
            if code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._session.reset()
            else:
                log.warning("fetch.refused", source=self.source_id, reason=code.name)
                self.on_failure()
            return
        self._session.on_response(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                followed = self.followed.get((topic.topic_id, data.partition_index))
                if followed is not None and followed.asked_offset == followed.partition.log.offsets.log_end_offset:
                    self._handle_partition(followed, data)

    def _handle_partition(self, followed: FollowedPartition, data: PartitionData) -> None:
        try:
            if data.error_code:
                self._on_refused(followed, ErrorCode(data.error_code))
            else:
                self._append(followed, data)
        except (KafkaError, DecodeError) as error:
            log.warning("follower.failed", partition=str(followed.partition.topic_partition), reason=str(error))
            self._back_off(followed)

    def _append(self, followed: FollowedPartition, data: PartitionData) -> None:
        partition, epoch = followed.partition, followed.leader_epoch
        now_ms = self._context.clock.time_ms()
        if data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
            diverging = data.diverging_epoch
            partition.truncate_by(diverging.epoch, diverging.end_offset, leader_epoch=epoch, now_ms=now_ms)
            return
        partition.require_following(epoch)
        followed.next_backoff_ms = FIRST_BACKOFF_MS
        if data.records:
            partition.append_as_follower(data.records, leader_epoch=epoch, now_ms=now_ms)
            if self._throttle is not None and self._throttle.applies(partition):
                self._throttle.record(len(data.records))
        partition.follow_watermarks(data.high_watermark, data.log_start_offset)

    def _on_refused(self, followed: FollowedPartition, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.out_of_range = True
            return
        log_event = log.debug if code in _QUIET else log.warning
        log_event("follower.refused", partition=str(followed.partition.topic_partition), reason=code.name)
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            followed.backoff_until_ms = _NEVER_MS  # until the metadata names the new epoch
        elif code in _UNAWARE:
            self._back_off(followed, min(followed.next_backoff_ms, self.settings.backoff_ms))
            followed.next_backoff_ms = min(followed.next_backoff_ms * 2, self.settings.backoff_ms)
        else:
            self._back_off(followed)

    def _back_off(self, followed: FollowedPartition, pause_ms: float | None = None) -> None:
        pause_ms = self.settings.backoff_ms if pause_ms is None else pause_ms
        followed.backoff_until_ms = self._context.clock.monotonic_ms() + pause_ms

    # ---------------------------------------------------------------------------------------------- out of range

    def out_of_range(self) -> list[FollowedPartition]:
        """The partitions that need the start and end offsets of the leader's log."""
        return [followed for followed in self.followed.values() if followed.out_of_range]

    def on_offsets(self, followed: FollowedPartition, earliest: Offset, latest: Offset) -> None:
        """The start and end offsets of the leader's log; -1 after a refusal."""
        followed.out_of_range = False
        partition, now_ms = followed.partition, self._context.clock.time_ms()
        if earliest < 0 or latest < 0:
            self._back_off(followed)
            return
        try:
            partition.require_following(followed.leader_epoch)
            end = partition.log.offsets.log_end_offset
            if latest < end:
                # The leader's log is shorter: an unclean election has dropped the records beyond its end.
                log.warning("follower.diverged", partition=str(partition.topic_partition), end=end, leader_end=latest)
                partition.log.truncate_to(latest, now_ms)
            elif earliest > end:
                partition.log.truncate_fully_and_start_at(earliest, now_ms)
            else:
                partition.follow_watermarks(partition.log.offsets.high_watermark, earliest)
                self._back_off(followed)
        except KafkaError as error:
            log.warning("follower.failed", partition=str(partition.topic_partition), reason=error.message)
            self._back_off(followed)
