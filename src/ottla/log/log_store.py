"""All logs of a node: its `log.dirs`, the partitions in them, and the periodic work over both.

Directories are locked and identified by `open_directories`, partitions loaded by `load`, everything synced and marked
clean by `shutdown`. No clock, no threads: each periodic duty is a method that takes `now_ms`. A directory that fails
goes offline with its partitions; the methods here skip it and go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.env.seams import RandomSource, Storage
from ottla.log.checkpoints import (
    UNKNOWN_BROKER_EPOCH,
    CorruptCheckpointError,
    read_clean_shutdown,
    read_offsets,
    was_written_empty,
    write_clean_shutdown,
    write_offsets,
)
from ottla.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIR_SUFFIX,
    parse_partition_dir,
    unique_dir,
)
from ottla.log.local_log import FlushPlan
from ottla.log.log_directory import LogDirectory
from ottla.log.log_dirs_description import LogDirDescription, describe_directory
from ottla.log.open_files import DEFAULT_OPEN_FILES, OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import EVERYTHING, create_partition_log, load_partition_log
from ottla.log.replica_log import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from ottla.log.retention import delete_old_segments
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_DIR, ZERO_UUID, Offset, TimestampMs, TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.log.erasure import KeyCustody

_log = get_logger(__name__)


class LogDirectoryError(Exception):
    """A log directory cannot be used as it stands: locked by another process, or with folders that contradict."""


class LogStore:
    def __init__(
        self,
        storage: Storage,
        random: RandomSource,
        log_dirs: Sequence[str],
        *,
        open_files: int = DEFAULT_OPEN_FILES,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        on_directory_failed: Callable[[LogDirectory, list[TopicPartition]], None] | None = None,
    ) -> None:
        self._storage = storage
        self._random = random
        self._on_directory_failed = on_directory_failed
        self.producer_id_expiration_ms = producer_id_expiration_ms
        shared_files = OpenFiles(open_files)
        self.directories = [
            LogDirectory(storage, path, random=random, open_files=shared_files, on_failed=self._directory_failed)
            for path in log_dirs
        ]
        self._locks: list[Callable[[], None]] = []
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._futures: dict[TopicPartition, PartitionLog] = {}
        self._deleted: list[tuple[TimestampMs, LogDirectory, str]] = []
        self.copied_bytes = 0
        """By moves between the directories, since the start."""
        self._loaded = False
        self.custody: KeyCustody | None = None
        """With encryption at rest."""
        self.previous_broker_epoch = UNKNOWN_BROKER_EPOCH
        """The broker epoch of the last clean shutdown, when all directories agree on it."""

    # ------------------------------------------------------------------------------------------------ opening

    def open_directories(self, directory_ids: Mapping[str, Uuid] | None = None) -> None:
        """Lock every directory; `directory_ids` says who they are. LogDirectoryError when another process has one."""
        epochs = set()
        for log_dir in self.directories:
            # Also of one that fails: the controller must hear which it is.
            log_dir.directory_id = (directory_ids or {}).get(log_dir.path, ZERO_UUID)
            try:
                self._storage.make_dirs(log_dir.path)
                release = self._storage.lock(f"{log_dir.path}/{LOCK}")
                if release is None:
                    self._release_locks()
                    raise LogDirectoryError(f"{log_dir.path} is locked: another server is running on it")
                self._locks.append(release)
                epochs.add(read_clean_shutdown(self._storage, log_dir.path))
            except OSError as error:
                log_dir.fail(error)
        if len(epochs) == 1:
            self.previous_broker_epoch = epochs.pop() or UNKNOWN_BROKER_EPOCH

    def _release_locks(self) -> None:
        for release in self._locks:
            release()
        self._locks.clear()

    def load(self, config_for: Callable[[str], TopicConfig], now_ms: TimestampMs) -> None:
        """Load every partition folder, `config_for(topic)` giving its settings; recover where the stop was not clean."""
        for log_dir in self.online_directories():
            try:
                self._load_directory(log_dir, config_for, now_ms)
            except (OSError, KafkaError) as error:
                log_dir.fail(error)
        self._loaded = True

    def _load_directory(
        self, log_dir: LogDirectory, config_for: Callable[[str], TopicConfig], now_ms: TimestampMs
    ) -> None:
        path = log_dir.path
        clean = read_clean_shutdown(self._storage, path) is not None
        self._storage.remove(f"{path}/{CLEAN_SHUTDOWN}")
        recovery_points = self._read_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT)
        log_starts = self._read_checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT)
        compacted = self._read_checkpoint(log_dir, CLEANER_CHECKPOINT)
        lost = not recovery_points and not was_written_empty(self._storage, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        for name in self._storage.list_dir(path):
            parsed = parse_partition_dir(name)
            directory = f"{path}/{name}"
            if parsed is None or name == METADATA_DIR or not self._storage.is_dir(directory):
                continue
            partition, suffix = parsed
            if suffix == DELETE_DIR_SUFFIX:
                delay = config_for(partition.topic).file_delete_delay_ms
                self._deleted.append((now_ms + delay, log_dir, directory))
                continue
            if suffix == STRAY_DIR_SUFFIX:
                _log.warning("log.stray", directory=directory)
                continue
            log = load_partition_log(
                log_dir,
                directory,
                partition,
                config_for(partition.topic),
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                # Where nobody knows any more what was synced, every hole is taken for compaction's, as Kafka does.
                compacted_up_to=EVERYTHING if lost else compacted.get(partition, 0),
                producer_id_expiration_ms=self.producer_id_expiration_ms,
            )
            log.advance_high_watermark(high_watermarks.get(partition, log.log_start_offset))
            if self.custody is not None and self.custody.is_plain(log.active_segment.path(LOG_SUFFIX)):
                log.roll(now_ms)  # encryption was switched on: what is written from now on is covered
            self._keep(log, self._futures if suffix == FUTURE_DIR_SUFFIX else self._logs)

    def _keep(self, log: PartitionLog, logs: dict[TopicPartition, PartitionLog]) -> None:
        other = logs.get(log.topic_partition)
        if other is not None:
            raise LogDirectoryError(
                f"{log.topic_partition} is in both {other.directory} and {log.directory}: a directory failed while the "
                "replica was being moved. Remove the one in the directory that failed."
            )
        logs[log.topic_partition] = log

    def _read_checkpoint(self, log_dir: LogDirectory, name: str) -> dict[TopicPartition, Offset]:
        refused = CorruptCheckpointError if name != CLEANER_CHECKPOINT else (CorruptCheckpointError, OSError)
        try:
            return read_offsets(self._storage, f"{log_dir.path}/{name}")
        except refused as error:
            _log.warning("checkpoint.rejected", error=str(error))
            return {}

    # ------------------------------------------------------------------------------------------------ partitions

    def online_directories(self) -> list[LogDirectory]:
        return [log_dir for log_dir in self.directories if not log_dir.offline]

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The partition's log, also while its directory is offline (its methods answer KAFKA_STORAGE_ERROR then)."""
        return self._logs.get(partition)

    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._logs

    def online_logs(self) -> Iterator[PartitionLog]:
        """A copy to iterate over: what is called for each may change the set."""
        return (log for log in list(self._logs.values()) if not log.log_dir.offline)

    def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: TimestampMs,
        *,
        directory: str | None = None,
    ) -> PartitionLog:
        """A new log in `directory`, else in the online directory with the fewest partitions."""
        if partition in self._logs:
            raise ValueError(f"{partition} has a log already")
        log_dir = self._directory(directory) if directory is not None else self._least_loaded()
        log_dir.check_online()
        try:
            log = create_partition_log(
                log_dir, f"{log_dir.path}/{partition}", partition, config, now_ms=now_ms, topic_id=topic_id
            )
        except OSError as error:
            raise log_dir.storage_error(error) from error
        log.producer_id_expiration_ms = self.producer_id_expiration_ms
        self._logs[partition] = log
        return log

    def check_not_elsewhere(self, directory_id: Uuid) -> None:
        """Whether a log that is in the directory with this id can be made anew: not while a directory is offline that may
        be the one. An empty log in another would take its place, and hide it when it comes back.
        """
        online = {log_dir.directory_id for log_dir in self.online_directories()}
        if directory_id != ZERO_UUID and directory_id not in online and len(online) < len(self.directories):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The log directory that has it is offline")

    def _directory(self, path: str) -> LogDirectory:
        for log_dir in self.directories:
            if log_dir.path == path:
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of this node's log directories")

    def _least_loaded(self) -> LogDirectory:
        online = self.online_directories()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All log directories are offline")
        open_ones = [log_dir for log_dir in online if not log_dir.cordoned] or online
        if len(open_ones) == 1:
            return open_ones[0]
        counts = {log_dir.path: 0 for log_dir in open_ones}
        for log in self._all_logs():
            if log.log_dir.path in counts:
                counts[log.log_dir.path] += 1
        return min(open_ones, key=lambda log_dir: counts[log_dir.path])

    def delete(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Take the partition out: its folder is renamed at once and removed by `remove_due_files`."""
        self.abandon_future(partition, now_ms)
        log = self._logs.pop(partition, None)
        if log is not None:
            self._discard(log, DELETE_DIR_SUFFIX, now_ms)

    def destroy_keys(self, topic: str, of: Collection[TopicPartition] | None = None) -> None:
        """The topic was deleted: what encrypts these partitions, or all there is of the topic, can never be read again.

        Before their folders go or are put aside: after a crash in between they are found again.
        """
        if self.custody is None:
            return
        for log_dir in self.online_directories():
            dead = None if of is None else {str(partition) for partition in of}
            try:
                self.custody.destroy_keys(log_dir.path, topic, dead)
            except OSError as error:
                log_dir.fail(error)

    def keyed_topics(self) -> set[str]:
        """Topics that have keys in some directory."""
        if self.custody is None:
            return set()
        return {topic for log_dir in self.online_directories() for topic in self.custody.keyed_topics(log_dir.path)}

    def mark_stray(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """The metadata does not give this replica to the node: put it aside under another name and keep it."""
        if (log := self._logs.pop(partition, None)) is not None:
            self._discard(log, STRAY_DIR_SUFFIX, now_ms)
            _log.warning("log.stray", directory=log.directory)

    def _discard(self, log: PartitionLog, suffix: str, now_ms: TimestampMs) -> None:
        log_dir = log.log_dir
        log.forget()
        log.discarded = True
        if log_dir.offline:
            return
        name = unique_dir(log.topic_partition, self._random.token_bytes(16), suffix)
        log.rename_directory(f"{log_dir.path}/{name}")
        if suffix == DELETE_DIR_SUFFIX:
            self._deleted.append((now_ms + log.config.file_delete_delay_ms, log_dir, log.directory))

    # ------------------------------------------------------------------------------------------------ moving

    def future(self, partition: TopicPartition) -> PartitionLog | None:
        """The copy of the partition that is being made in another directory (AlterReplicaLogDirs)."""
        return self._futures.get(partition)

    def create_future(self, partition: TopicPartition, directory: str, now_ms: TimestampMs) -> PartitionLog:
        """Begin a move: an empty copy in `directory`, to be filled by `copy_to_future`."""
        log_dir = self._directory(directory)
        log_dir.check_online()
        current = self._logs[partition]
        name = unique_dir(partition, self._random.token_bytes(16), FUTURE_DIR_SUFFIX)
        try:
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
            raise log_dir.storage_error(error) from error
        self._futures[partition] = future
        return future

    def copy_to_future(self, partition: TopicPartition, max_bytes: int, now_ms: TimestampMs) -> bool:
        """Copy up to about `max_bytes` more; True when the copy has caught up and `promote_future` may be called."""
        current, future = self._logs[partition], self._futures[partition]
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset, now_ms)
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset, now_ms)
        piece = current.read(future.log_end_offset, max_bytes)
        if piece.length:
            future.append_as_follower(piece.read(), now_ms=now_ms)
            self.copied_bytes += piece.length
        future.advance_high_watermark(current.high_watermark)
        return future.log_end_offset == current.log_end_offset

    def promote_future(self, partition: TopicPartition, now_ms: TimestampMs) -> PartitionLog:
        """The copy takes the partition's name, the old log goes. Only when it has caught up."""
        current, future = self._logs[partition], self._futures[partition]
        if future.log_end_offset != current.log_end_offset:
            raise ValueError(f"the copy of {partition} has not caught up")
        future.flush(now_ms)
        self._discard(current, DELETE_DIR_SUFFIX, now_ms)
        future.rename_directory(f"{future.log_dir.path}/{partition}")
        future.advance_log_start_offset(min(current.log_start_offset, future.high_watermark))
        del self._futures[partition]
        self._logs[partition] = future
        return future

    def abandon_future(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        log = self._futures.pop(partition, None)
        if log is not None:
            self._discard(log, DELETE_DIR_SUFFIX, now_ms)

    # ------------------------------------------------------------------------------------------------ periodic work

    def delete_old_segments(self, now_ms: TimestampMs) -> int:
        """Retention over all logs that do not compact only (every `log.retention.check.interval.ms`)."""
        deleted = 0
        for log in self.online_logs():
            try:
                deleted += delete_old_segments(log, now_ms)
            except KafkaError as error:
                _log.warning("retention.failed", partition=str(log.topic_partition), error=error.message)
        return deleted

    def remove_expired_producers(self, now_ms: TimestampMs) -> int:
        return sum(log.remove_expired_producers(now_ms) for log in self.online_logs())

    def logs_to_flush(self, now_ms: TimestampMs) -> list[PartitionLog]:
        """Those whose `flush.ms` is over: `prepare_flush` and sync them."""
        return [log for log in self.online_logs() if log.flush_due(now_ms)]

    def remove_due_files(self, now_ms: TimestampMs) -> int:
        """Remove deleted segments and partitions whose delay is over."""
        removed = sum(log_dir.remove_due_files(now_ms) for log_dir in self.online_directories())
        waiting = []
        for due_ms, log_dir, directory in self._deleted:
            if log_dir.offline:
                continue
            if due_ms > now_ms:
                waiting.append((due_ms, log_dir, directory))
                continue
            try:
                self._storage.remove_tree(directory)
                removed += 1
            except OSError as error:
                log_dir.fail(error)
        self._deleted = waiting
        return removed

    # A checkpoint that only saves work after a crash need not wait for the disk: without `sync` a power cut may leave
    # an older one, and more of the log is looked through.

    def checkpoint_recovery_points(self, *, sync: bool = True) -> None:
        self._checkpoint(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point, sync=sync)

    def checkpoint_deletion(self) -> None:
        """After partitions were deleted: a namesake that is created next must not inherit their offsets in a crash."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()

    def checkpoint_log_start_offsets(self, *, sync: bool = True) -> None:
        """Only those that the first segment's name does not tell."""
        self._checkpoint(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None,
            sync=sync,
        )

    def checkpoint_high_watermarks(self, *, sync: bool = True) -> None:
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark, sync=sync)

    def _checkpoint(self, name: str, value: Callable[[PartitionLog], Offset | None], *, sync: bool) -> None:
        for log_dir in self.online_directories():
            offsets = {}
            for partition, log in self._logs.items():
                offset = value(log) if log.log_dir is log_dir else None
                if offset is not None:
                    offsets[partition] = offset
            try:
                write_offsets(self._storage, f"{log_dir.path}/{name}", offsets, sync=sync)
            except OSError as error:
                log_dir.storage_error(error)

    def describe(self) -> list[LogDirDescription]:
        """What DescribeLogDirs answers, one entry per directory."""
        return [
            describe_directory(log_dir, self._logs.values(), self._futures.values()) for log_dir in self.directories
        ]

    # ------------------------------------------------------------------------------------------------ ending

    def _directory_failed(self, log_dir: LogDirectory) -> None:
        partitions = [partition for partition, log in self._logs.items() if log.log_dir is log_dir]
        for partition in partitions:
            self._logs[partition].forget()
        if self._on_directory_failed is not None:
            self._on_directory_failed(log_dir, partitions)

    def shutdown(
        self,
        now_ms: TimestampMs,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        *,
        run_all: Callable[[Iterable[Callable[[], None]]], None] | None = None,
    ) -> None:
        """Write and sync everything, then mark each directory clean and release it.

        `run_all` runs the blocking syncs, in threads if it likes; by default they run here one after the other.
        """
        plans = [(log, plan) for log in self._all_logs() if (plan := self._close(log)) is not None]
        syncs = [partial(self._sync, log, plan) for log, plan in plans]
        if run_all is not None:
            run_all(syncs)
        else:
            for sync in syncs:
                sync()
        for log, plan in plans:
            if not log.log_dir.offline:
                log.flushed(plan, now_ms)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()
        for log_dir in self.online_directories():
            if not self._loaded:
                break
            try:
                write_clean_shutdown(self._storage, log_dir.path, broker_epoch)
            except OSError as error:
                log_dir.fail(error)
        for log in self._all_logs():
            log.forget()
        self._release_locks()

    def abandon(self) -> None:
        """A start that failed: let go of everything as it is, unmarked, so that the next start recovers."""
        for log in self._all_logs():
            log.forget()
        self._release_locks()

    def _all_logs(self) -> list[PartitionLog]:
        return [*self._logs.values(), *self._futures.values()]

    def _close(self, log: PartitionLog) -> FlushPlan | None:
        try:
            return log.close()
        except KafkaError as error:
            # A directory that cannot take the last bytes must not be called clean.
            log.log_dir.fail(error)
            return None

    @staticmethod
    def _sync(log: PartitionLog, plan: FlushPlan) -> None:
        try:
            plan.sync()
        except OSError as error:
            log.log_dir.fail(error)
