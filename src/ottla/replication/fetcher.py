"""What a follower asks one leader for, and what it does with the answer. No I/O: a driver carries both.

One request is in flight at a time. A partition whose fetch failed rests for replica.fetch.backoff.ms; one whose leader
has not heard of its leadership yet is asked again after some milliseconds, then ever more seldom; one that is fenced
rests until the metadata names a newer epoch. An answer counts only for the epoch and offset that were asked.
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
from ottla.replication import following
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
"""Metadata travels at its own speed: these pass by themselves."""
_UNAWARE = _QUIET - {ErrorCode.FENCED_LEADER_EPOCH}
"""The leader has older metadata than we have. Producers with acks=all wait for us, so a second would be long."""
FIRST_REST_MS = 10.0


@dataclass(slots=True, kw_only=True)
class FetcherSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000


class Followed:
    """A partition that this fetcher follows in one leader epoch."""

    __slots__ = ("asked_offset", "begun", "leader_epoch", "out_of_range", "partition", "rest_ms", "rests_until_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.rests_until_ms = 0.0
        self.rest_ms = FIRST_REST_MS
        """How long to rest after the next refusal of a leader that is not aware of its leadership."""
        self.asked_offset: Offset = -1
        self.begun = False
        """`following.begin` was done: the log holds nothing that it may not keep."""
        self.out_of_range = False
        """The leader's log does not hold our end: `ReplicaFetcher.on_offsets` settles it."""


class ReplicaFetcher:
    def __init__(
        self, context: ReplicaContext, source_id: NodeId, settings: FetcherSettings, throttle: Throttle | None = None
    ) -> None:
        self._context = context
        self.source_id = source_id
        self.settings = settings
        self._throttle = throttle
        self._session = FollowerSession()
        self.followed: dict[Key, Followed] = {}

    # ---------------------------------------------------------------------------------------------- which partitions

    def add(self, partition: Partition) -> None:
        """Follow a partition in its present epoch."""
        key = (partition.topic_id, partition.topic_partition.partition)
        known = self.followed.get(key)
        if known is not None and known.leader_epoch == partition.leader_epoch and known.partition is partition:
            return
        followed = self.followed[key] = Followed(partition)
        self._begin(followed)

    def _begin(self, followed: Followed) -> None:
        """Once an epoch, before its first fetch; a log that the disk does not let be cut now is asked again later."""
        try:
            following.begin(followed.partition.log, self._context.clock.time_ms())
            followed.begun = True
        except KafkaError as error:
            log.error("follower.failed", partition=str(followed.partition.topic_partition), reason=error.message)
            self._rest(followed)

    def remove(self, partition: Partition) -> None:
        self.followed.pop((partition.topic_id, partition.topic_partition.partition), None)

    # ---------------------------------------------------------------------------------------------- asking

    def request(self) -> FetchRequest | None:
        """The next fetch, or None while there is nothing to ask for (`rest_ms` says how long)."""
        now_ms = self._context.clock.monotonic_ms()
        wanted: dict[Key, FetchPartition] = {}
        for key, followed in list(self.followed.items()):
            if followed.rests_until_ms > now_ms or followed.out_of_range or self._throttled(followed.partition):
                continue
            if not followed.begun:
                self._begin(followed)
                if not followed.begun:
                    continue
            partition_log = followed.partition.log
            followed.asked_offset = partition_log.log_end_offset
            wanted[key] = FetchPartition(
                partition=key[1],
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=followed.asked_offset,
                last_fetched_epoch=partition_log.latest_epoch,
                log_start_offset=partition_log.log_start_offset,
                partition_max_bytes=self.settings.partition_max_bytes,
            )
        if not wanted and self._session.id == 0:
            return None
        topics, forgotten = self._session.told(wanted)
        if not wanted:
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
        """A partition that rests must not wait for the long poll of those that have nothing new."""
        rests = (f.rests_until_ms - now_ms for f in self.followed.values() if f.rests_until_ms > now_ms)
        return ceil(min(self.settings.max_wait_ms, min(rests, default=_NEVER_MS)))

    def _throttled(self, partition: Partition) -> bool:
        """A throttled replica that is not in sync waits while the rate is used up."""
        throttle = self._throttle
        return (
            throttle is not None
            and throttle.exceeded()
            and self._context.node_id not in partition.isr
            and throttle.applies(partition)
        )

    def rest_ms(self) -> float:
        """How long until `request` may have something to ask for."""
        now_ms = self._context.clock.monotonic_ms()
        wakes = [f.rests_until_ms for f in self.followed.values() if not f.out_of_range]
        return max(min(wakes, default=_NEVER_MS) - now_ms, 0.0)

    # ---------------------------------------------------------------------------------------------- the answer

    def on_failure(self) -> None:
        """No answer: the session is void, and all rest."""
        self._session.reset()
        until_ms = self._context.clock.monotonic_ms() + self.settings.backoff_ms
        for followed in self.followed.values():
            followed.rests_until_ms = max(followed.rests_until_ms, until_ms)

    def on_response(self, response: FetchResponse) -> None:
        if response.error_code:
            code = ErrorCode(response.error_code)
            if code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                self._session.reset()
            else:
                log.warning("fetch.refused", source=self.source_id, reason=code.name)
                self.on_failure()
            return
        self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                followed = self.followed.get((topic.topic_id, data.partition_index))
                if followed is not None and followed.asked_offset == followed.partition.log.log_end_offset:
                    self._take(followed, data)

    def _take(self, followed: Followed, data: PartitionData) -> None:
        try:
            if data.error_code:
                self._refused(followed, ErrorCode(data.error_code))
            else:
                self._append(followed, data)
        except (KafkaError, DecodeError) as error:
            log.warning("follower.failed", partition=str(followed.partition.topic_partition), reason=str(error))
            self._rest(followed)

    def _append(self, followed: Followed, data: PartitionData) -> None:
        partition, epoch = followed.partition, followed.leader_epoch
        now_ms = self._context.clock.time_ms()
        if data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
            diverging = data.diverging_epoch
            partition.truncate_by(diverging.epoch, diverging.end_offset, leader_epoch=epoch, now_ms=now_ms)
            return
        partition.require_following(epoch)
        followed.rest_ms = FIRST_REST_MS
        if data.records:
            partition.append_as_follower(data.records, leader_epoch=epoch, now_ms=now_ms)
            if self._throttle is not None and self._throttle.applies(partition):
                self._throttle.record(len(data.records))
        partition.follow_watermarks(data.high_watermark, data.log_start_offset)

    def _refused(self, followed: Followed, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.out_of_range = True
            return
        tell = log.debug if code in _QUIET else log.warning
        tell("follower.refused", partition=str(followed.partition.topic_partition), reason=code.name)
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            followed.rests_until_ms = _NEVER_MS  # the metadata will name the new epoch
        elif code in _UNAWARE:
            self._rest(followed, min(followed.rest_ms, self.settings.backoff_ms))
            followed.rest_ms = min(followed.rest_ms * 2, self.settings.backoff_ms)
        else:
            self._rest(followed)

    def _rest(self, followed: Followed, rest_ms: float | None = None) -> None:
        pause_ms = self.settings.backoff_ms if rest_ms is None else rest_ms
        followed.rests_until_ms = self._context.clock.monotonic_ms() + pause_ms

    # ---------------------------------------------------------------------------------------------- out of range

    def out_of_range(self) -> list[Followed]:
        """Those whose leader must be asked where its log begins and ends."""
        return [followed for followed in self.followed.values() if followed.out_of_range]

    def on_offsets(self, followed: Followed, earliest: Offset, latest: Offset) -> None:
        """Where the leader's log begins and ends; -1 when it would not say."""
        followed.out_of_range = False
        partition, now_ms = followed.partition, self._context.clock.time_ms()
        if earliest < 0 or latest < 0:
            self._rest(followed)
            return
        try:
            partition.require_following(followed.leader_epoch)
            end = partition.log.log_end_offset
            if latest < end:
                # Our leader has less than we: an unclean election took what we have beyond it.
                log.warning("follower.ahead", partition=str(partition.topic_partition), end=end, leader_end=latest)
                partition.log.truncate_to(latest, now_ms)
            elif earliest > end:
                partition.log.truncate_fully_and_start_at(earliest, now_ms)
            else:
                partition.follow_watermarks(partition.log.high_watermark, earliest)
                self._rest(followed)
        except KafkaError as error:
            log.warning("follower.failed", partition=str(partition.topic_partition), reason=error.message)
            self._rest(followed)
