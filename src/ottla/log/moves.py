"""Moves of logs between the directories of a node, on disk: the copies, and how a copy takes the partition's name.

A promotion is a sequence of renames and syncs. A kill, a power cut or an OSError at any step leaves one whole log that
the next start finds:

1. All files of the copy are synced, and the target's checkpoints hold its offsets.
2. `topic-partition.<hex>-future` becomes `topic-partition` in the target, and the target directory is synced.
3. The log in the source becomes `topic-partition.<hex>-delete`, and the source's checkpoints lose its entries.

Before 2 the source has the log. Between 2 and 3 both have it, and are equal (`log_choice` chooses). From 2 on only the
copy grows. An error up to 2 leaves the source serving, an error in 3 leaves the target serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from ottla.env.logging import get_logger
from ottla.env.seams import RandomSource
from ottla.log.discarded_logs import DiscardedLogs
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, MAX_DIR_NAME, unique_dir
from ottla.log.future_copy import FutureCopy
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.promotion import prepare_promotion, promote
from ottla.log.recovery import create_partition_log
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TimestampMs, TopicPartition, Uuid

_log = get_logger(__name__)


class LogMoves:
    def __init__(
        self,
        logs: MutableMapping[TopicPartition, PartitionLog],
        random: RandomSource,
        discarded: DiscardedLogs,
        checkpoint: Callable[[LogDirectory], None],
        forget_former: Callable[[LogDirectory, TopicPartition], None],
    ) -> None:
        """`checkpoint` writes and syncs the checkpoints of one directory, or raises KafkaError. `forget_former` removes
        what a former log of a partition left in the checkpoints of a directory, or raises OSError.
        """
        self._logs = logs
        self._random = random
        self._discarded = discarded
        self._checkpoint = checkpoint
        self._forget_former = forget_former
        self._copies: dict[TopicPartition, FutureCopy] = {}
        self._orphans: dict[TopicPartition, PartitionLog] = {}
        """Copies that a start found without the log that they were made from."""
        self.copied_bytes = 0
        """Since the start of the node."""

    def future(self, partition: TopicPartition) -> PartitionLog | None:
        """The copy of the partition that is being made in another directory."""
        copy = self._copies.get(partition)
        return copy.future if copy is not None else None

    def futures(self) -> Iterator[PartitionLog]:
        return (copy.future for copy in list(self._copies.values()))

    def futures_to_sync(self, unsynced_bytes: int) -> list[PartitionLog]:
        """Copies that have grown by so much since they were returned here last."""
        return [copy.future for copy in self._copies.values() if copy.take_unsynced(unsynced_bytes)]

    @property
    def orphans(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._orphans

    # ------------------------------------------------------------------------------------------------ copying

    @staticmethod
    def check_target(partition: TopicPartition, log_dir: LogDirectory) -> None:
        """KafkaError when no copy can be made there."""
        if len(unique_dir(partition, bytes(16), FUTURE_DIR_SUFFIX)) > MAX_DIR_NAME:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dir.check_online()

    def create(self, partition: TopicPartition, log_dir: LogDirectory, now_ms: TimestampMs) -> PartitionLog:
        """Begin a move: an empty copy in `log_dir`, to be filled by `copy`."""
        self.check_target(partition, log_dir)
        current = self._logs[partition]
        name = unique_dir(partition, self._random.token_bytes(16), FUTURE_DIR_SUFFIX)
        try:
            # With a checkpoint entry of an earlier log of the partition, recovery would trust bytes that were never
            # synced.
            self._forget_former(log_dir, partition)
            future = create_partition_log(
                log_dir,
                f"{log_dir.path}/{name}",
                partition,
                current.config,
                now_ms=now_ms,
                topic_id=current.topic_id,
                start_offset=current.log_start_offset,
            )
        except OSError as error:
            self._discarded.drop_half_made(f"{log_dir.path}/{name}")
            raise log_dir.storage_error(error) from error
        future.producers.expiration_ms = current.producers.expiration_ms
        self._copies[partition] = FutureCopy(current, future)
        return future

    def resume(self, future: PartitionLog, current: PartitionLog, now_ms: TimestampMs, *, start_over: bool) -> None:
        """Continue a move of which a start found both logs. `start_over`: compaction may have removed tombstones while
        the copy's directory was offline, so that deleted values in the copy would come back.
        """
        copy = self._copies[current.topic_partition] = FutureCopy(current, future)
        if start_over:
            try:
                copy.start_over(now_ms)
            except KafkaError as error:
                _log.error("move.failed", partition=str(current.topic_partition), reason=error.message)
                self.abandon(current.topic_partition, now_ms)

    def copy(self, partition: TopicPartition, max_bytes: int, now_ms: TimestampMs) -> bool:
        """Copy up to about `max_bytes` more; True when the copy has caught up and `promote` may be called."""
        copy = self._copies[partition]
        self.copied_bytes += copy.advance(max_bytes, now_ms)
        return copy.caught_up

    def abandon(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        copy = self._copies.pop(partition, None)
        if copy is not None:
            copy.release()
            self._discarded.discard(copy.future, DELETE_DIR_SUFFIX, now_ms)

    def directory_failed(self, log_dir: LogDirectory) -> None:
        """Copies in a directory that failed are given up; their files stay for the next start."""
        for partition, copy in list(self._copies.items()):
            if copy.future.log_dir is log_dir:
                del self._copies[partition]
                copy.release()
                copy.future.forget()

    # ------------------------------------------------------------------------------------------------ promotion

    def promote(self, partition: TopicPartition, now_ms: TimestampMs) -> PartitionLog:
        """The copy takes the partition's name, the old log goes. KafkaError leaves the old log in its place."""
        copy = self._copies[partition]
        current, future = copy.current, copy.future
        if not copy.caught_up:
            raise ValueError(f"the copy of {partition} has not caught up")
        self._name(future, current, now_ms)
        del self._copies[partition]
        self._logs[partition] = future
        copy.release()
        _log.info("log.moved", partition=str(partition), source=current.log_dir.path, target=future.log_dir.path)
        self._discarded.discard(current, DELETE_DIR_SUFFIX, now_ms)
        try:
            if not current.log_dir.offline:
                self._checkpoint(current.log_dir)
        except KafkaError as error:
            # The periodic checkpoint tries again; until then a start finds an entry of no log.
            _log.warning("checkpoint.not_written", directory=current.log_dir.path, reason=error.message)
        return future

    def _name(self, future: PartitionLog, replaced: PartitionLog, now_ms: TimestampMs) -> None:
        log_dir = future.log_dir
        self._discarded.clear_name(log_dir, future.topic_partition, now_ms)
        prepare_promotion(future, replaced, now_ms)
        self._checkpoint(log_dir)
        promote(future, replaced)

    # ------------------------------------------------------------------------------------------------ orphans

    def keep_orphan(self, future: PartitionLog) -> None:
        self._orphans[future.topic_partition] = future

    def adopt(self, partition: TopicPartition, topic_id: Uuid, now_ms: TimestampMs) -> PartitionLog | None:
        """The copy that a start found without its log becomes the log, if it belongs to the topic."""
        orphan = self._orphans.get(partition)
        if orphan is None or orphan.topic_id != topic_id:
            return None
        orphan.log_dir.check_online()
        self._name(orphan, orphan, now_ms)
        del self._orphans[partition]
        self._logs[partition] = orphan
        _log.warning("log.adopted", partition=str(partition), directory=orphan.directory, end=orphan.log_end_offset)
        return orphan

    def take_orphan(self, partition: TopicPartition) -> PartitionLog | None:
        return self._orphans.pop(partition, None)
