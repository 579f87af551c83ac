"""All logs of a node: its `log.dirs`, the partitions in them, and the periodic work over both.

Directories are locked and identified by `open_directories`, partitions loaded by `load`, everything synced and marked
clean by `shutdown`. No clock, no threads: each periodic duty is a method that takes `now_ms`. A directory that fails
goes offline with its partitions; the methods here skip it and go on.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.env.seams import RandomSource, Storage
from ottla.log.checkpoints import (
    UNKNOWN_BROKER_EPOCH,
    read_clean_shutdown,
    was_written_empty,
    write_clean_shutdown,
)
from ottla.log.discarded_logs import DiscardedLogs
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
)
from ottla.log.log_choice import Assignments, LoadedLogs, choose, unassigned
from ottla.log.log_directory import LogDirectory, lacks_descriptors
from ottla.log.log_dirs_description import LogDirDescription, describe_directory
from ottla.log.log_flush import FlushPlan
from ottla.log.moves import LogMoves
from ottla.log.open_files import DEFAULT_OPEN_FILES, OpenFiles
from ottla.log.partition_checkpoints import checkpoint, follow_cleaner_checkpoint, write_all
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from ottla.log.recovery import EVERYTHING, create_partition_log, load_partition_log
from ottla.log.removals import Removal
from ottla.log.retention import delete_old_segments
from ottla.log.topic_keys import TopicKeys
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_DIR, ZERO_UUID, TimestampMs, TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.log.erasure import KeyCustody

_log = get_logger(__name__)


class LogDirectoryError(Exception):
    """A log directory cannot be used as it stands: another process has locked it."""


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
        self._on_directory_failed = on_directory_failed
        self.producer_id_expiration_ms = producer_id_expiration_ms
        shared_files = OpenFiles(open_files)
        self.directories = [
            LogDirectory(storage, path, random=random, open_files=shared_files, on_failed=self._directory_failed)
            for path in log_dirs
        ]
        self._locks: list[Callable[[], None]] = []
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._loaded_logs: dict[TopicPartition, LoadedLogs] = {}
        self._entries_left = False
        """When the node started: a checkpoint has entries of partitions whose folder is gone."""
        self._compacted: set[TopicPartition] = set()
        """When the node started: partitions with an entry in a cleaner checkpoint."""
        self._discarded = DiscardedLogs(storage, random)
        self.moves = LogMoves(self._logs, random, self._discarded, self._checkpoint_directory, self._forget_former)
        self.loaded = False
        """Whether `load` has ended: before, the directories are as the last process left them."""
        self._keys = TopicKeys(self.online_directories)
        self.previous_broker_epoch = UNKNOWN_BROKER_EPOCH
        """The broker epoch of the last clean shutdown, when all directories agree on it."""

    # ------------------------------------------------------------------------------------------------ opening

    def open_directories(self, directory_ids: Mapping[str, Uuid] | None = None) -> None:
        """Lock every directory; `directory_ids` maps paths to directory ids. LogDirectoryError when another process
        holds a lock.
        """
        epochs = set()
        for log_dir in self.directories:
            # A directory that fails gets its id too: the node reports that id to the controller.
            log_dir.directory_id = (directory_ids or {}).get(log_dir.path, ZERO_UUID)
            try:
                self._storage.make_dirs(log_dir.path)
                release = self._storage.lock(f"{log_dir.path}/{LOCK}")
                if release is None:
                    self._release_locks()
                    raise LogDirectoryError(
                        f"{log_dir.path} is locked: another server uses this directory; "
                        "stop that server, or change log.dirs"
                    )
                self._locks.append(release)
                epochs.add(read_clean_shutdown(self._storage, log_dir.path))
            except OSError as error:
                self._fail_at_start(log_dir, error)
        if len(epochs) == 1:
            self.previous_broker_epoch = epochs.pop() or UNKNOWN_BROKER_EPOCH

    def _fail_at_start(self, log_dir: LogDirectory, error: OSError | KafkaError) -> None:
        """The directory goes offline, but for want of descriptors the node must not start without it."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and lacks_descriptors(cause):
            raise LogDirectoryError(f"{log_dir.path}: {cause.strerror}. Raise the limit (`ulimit -n`)") from error
        log_dir.fail(error)

    def _release_locks(self) -> None:
        for release in self._locks:
            release()
        self._locks.clear()

    def load(
        self, config_for: Callable[[str], TopicConfig], now_ms: TimestampMs, assigned: Assignments = unassigned
    ) -> None:
        """Load every partition folder, `config_for(topic)` giving its settings; recover where the stop was not clean.

        `assigned` returns the metadata's topic id and directory id of a partition, to choose between several folders of
        one partition.
        """
        for log_dir in self.online_directories():
            try:
                self._load_directory(log_dir, config_for, now_ms)
            except (OSError, KafkaError) as error:
                self._fail_at_start(log_dir, error)
        set_aside = [self._take(partition, loaded, assigned, now_ms) for partition, loaded in self._loaded_logs.items()]
        if any(set_aside) or self._entries_left:
            self.checkpoint_deletion()
        for log_dir in self.online_directories():
            follow_cleaner_checkpoint(log_dir, self._logs)
        self._loaded_logs.clear()
        self.loaded = True

    def _load_directory(
        self, log_dir: LogDirectory, config_for: Callable[[str], TopicConfig], now_ms: TimestampMs
    ) -> None:
        path = log_dir.path
        clean = read_clean_shutdown(self._storage, path) is not None
        self._storage.remove(f"{path}/{CLEAN_SHUTDOWN}")
        # Else a power cut may bring the marker back, or a checkpoint older than the one that is read here: the next start
        # would trust bytes that were never synced.
        self._storage.sync_dir(path)
        checkpoints = log_dir.checkpoints
        recovery_points = checkpoints.read(RECOVERY_POINT_CHECKPOINT)
        log_starts = checkpoints.read(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = checkpoints.read(HIGH_WATERMARK_CHECKPOINT)
        compacted = checkpoints.read(CLEANER_CHECKPOINT)
        self._compacted.update(compacted)
        entries = {*recovery_points, *log_starts, *high_watermarks}
        lost = not recovery_points and not was_written_empty(self._storage, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        for name in self._storage.list_dir(path):
            parsed = parse_partition_dir(name)
            directory = f"{path}/{name}"
            if parsed is None or name == METADATA_DIR or not self._storage.is_dir(directory):
                continue
            partition, suffix = parsed
            if suffix == DELETE_DIR_SUFFIX:
                delay = config_for(partition.topic).file_delete_delay_ms
                self._discarded.remove_later(log_dir, directory, now_ms + delay)
                continue
            if suffix == STRAY_DIR_SUFFIX:
                _log.warning("log.set_aside", directory=directory)
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
                # Without the recovery points every gap is taken for a gap of compaction, as in Kafka.
                compacted_up_to=EVERYTHING if lost else compacted.get(partition, 0),
                producer_id_expiration_ms=self.producer_id_expiration_ms,
            )
            log.advance_high_watermark(high_watermarks.get(partition, log.log_start_offset))
            if self.custody is not None and self.custody.is_plain(log.active_segment.path(LOG_SUFFIX)):
                log.roll(now_ms)  # encryption was switched on: what is written from now on is covered
            loaded = self._loaded_logs.setdefault(partition, LoadedLogs([], []))
            (loaded.futures if suffix == FUTURE_DIR_SUFFIX else loaded.logs).append(log)
            entries.discard(partition)
        self._entries_left |= bool(entries)

    def _take(self, partition: TopicPartition, loaded: LoadedLogs, assigned: Assignments, now_ms: TimestampMs) -> bool:
        """Hold the partition's log and copy; whether other folders of it had to be set aside."""
        choice = choose(loaded, assigned(partition))
        for log in choice.superseded:
            _log.warning("log.superseded", directory=log.directory)
            self._discarded.discard(log, DELETE_DIR_SUFFIX, now_ms)
        for log in choice.contradicting:
            _log.warning("log.set_aside", directory=log.directory)
            self._discarded.discard(log, STRAY_DIR_SUFFIX, now_ms)
        if choice.log is not None:
            self._logs[partition] = choice.log
            if choice.future is not None:
                compacted = choice.log.config.compact or partition in self._compacted
                self.moves.resume(choice.future, choice.log, now_ms, start_over=compacted)
        elif choice.future is not None:
            self.moves.keep_orphan(choice.future)
        return bool(choice.superseded or choice.contradicting)

    # ------------------------------------------------------------------------------------------------ partitions

    def online_directories(self) -> list[LogDirectory]:
        return [log_dir for log_dir in self.directories if not log_dir.offline]

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The partition's log, also while its directory is offline (its methods answer KAFKA_STORAGE_ERROR then)."""
        return self._logs.get(partition)

    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._logs

    def online_logs(self) -> Iterator[PartitionLog]:
        """The logs whose directory is online, without those that are deleted while the caller iterates."""
        for log in list(self._logs.values()):
            if not log.log_dir.offline and self._logs.get(log.topic_partition) is log:
                yield log

    def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: TimestampMs,
        *,
        directory: str | None = None,
    ) -> PartitionLog:
        """A new log in `directory`, by default in the directory with the fewest partitions that accepts it. A full
        directory may have few partitions.
        """
        if partition in self._logs:
            raise ValueError(f"{partition} has a log already")
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All log directories are offline")
        for log_dir in self._by_load() if directory is None else [self.directory(directory)]:
            path = f"{log_dir.path}/{partition}"
            try:
                log_dir.check_online()
                self._discarded.clear_name(log_dir, partition, now_ms)
                self._forget_former(log_dir, partition)
                log = create_partition_log(log_dir, path, partition, config, now_ms=now_ms, topic_id=topic_id)
            except KafkaError as error:  # the next one may have room
                refusal = error
            except OSError as error:
                self._discarded.drop_half_made(path)
                refusal = log_dir.storage_error(error)
            else:
                log.producers.expiration_ms = self.producer_id_expiration_ms
                self._logs[partition] = log
                return log
        raise refusal

    def _forget_former(self, log_dir: LogDirectory, partition: TopicPartition) -> None:
        """A log of the partition is about to be created there: it starts without entries in the checkpoints."""
        log_dir.checkpoints.forget_absent(partition, partial(self._partitions_in, log_dir))

    def _partitions_in(self, log_dir: LogDirectory) -> set[TopicPartition]:
        return {log.topic_partition for log in self._all_logs() if log.log_dir is log_dir}

    def check_not_elsewhere(self, directory_id: Uuid) -> None:
        """KafkaError when the log may still exist in an offline directory with this id, so that no new log may be
        created. An empty log in another directory would hide the old log when its directory comes back.
        """
        online = {log_dir.directory_id for log_dir in self.online_directories()}
        if directory_id != ZERO_UUID and directory_id not in online and len(online) < len(self.directories):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The log directory that has it is offline")

    def check_not_offline(self, directory_id: Uuid) -> None:
        """KafkaError when the directory with this id is one of the node's and offline."""
        if directory_id != ZERO_UUID and any(d.offline and d.directory_id == directory_id for d in self.directories):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The log directory that the metadata names is offline")

    def directory(self, path: str) -> LogDirectory:
        for log_dir in self.directories:
            if log_dir.path == path:
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of this node's log directories")

    def _by_load(self) -> list[LogDirectory]:
        """Where a new log may go, the directory with the fewest partitions first."""
        online = self.online_directories()
        open_ones = [log_dir for log_dir in online if not log_dir.cordoned] or online
        if len(open_ones) == 1:
            return open_ones
        counts = {log_dir.path: 0 for log_dir in open_ones}
        for log in self._all_logs():
            if log.log_dir.path in counts:
                counts[log.log_dir.path] += 1
        return sorted(open_ones, key=lambda log_dir: counts[log_dir.path])

    def delete(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Take the partition out: its folder is renamed at once and removed by one of the `removals`."""
        self.moves.abandon(partition, now_ms)
        for log in (self._logs.pop(partition, None), self.moves.take_orphan(partition)):
            if log is not None:
                self._discarded.discard(log, DELETE_DIR_SUFFIX, now_ms)

    def destroy_keys(self, topic: str, of: Collection[TopicPartition] | None = None) -> None:
        """The topic was deleted: what encrypts these partitions, or all there is of the topic, can never be read again.

        Before their folders go or are put aside: after a crash in between they are found again.
        """
        self._keys.destroy(topic, None if of is None else {name for tp in of for name in self._folders(tp)})

    def keyed_topics(self) -> set[str]:
        """Topics that have keys in some directory."""
        return self._keys.topics()

    @property
    def custody(self) -> KeyCustody | None:
        """With encryption at rest."""
        return self._keys.custody

    @custody.setter
    def custody(self, custody: KeyCustody | None) -> None:
        self._keys.custody = custody

    def mark_stray(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """The metadata does not give this replica to the node: put it aside under another name and keep it."""
        self.moves.abandon(partition, now_ms)
        for log in (self._logs.pop(partition, None), self.moves.take_orphan(partition)):
            if log is not None:
                self._discarded.discard(log, STRAY_DIR_SUFFIX, now_ms)
                _log.warning("log.set_aside", directory=log.directory)

    def _folders(self, partition: TopicPartition) -> set[str]:
        """The names of all folders that hold records of the partition, whatever the directory."""
        logs = (self.moves.future(partition), self.moves.orphans.get(partition))
        return {str(partition), *(os.path.basename(log.directory) for log in logs if log is not None)}

    # ------------------------------------------------------------------------------------------------ moving

    def create_future(self, partition: TopicPartition, directory: str, now_ms: TimestampMs) -> PartitionLog:
        """Begin a move into `directory`."""
        return self.moves.create(partition, self.directory(directory), now_ms)

    # ------------------------------------------------------------------------------------------------ periodic work

    def delete_old_segments(self, now_ms: TimestampMs) -> Iterator[int]:
        """Retention, a step for each log: yields the number of deleted segments. Logs that only compact keep theirs."""
        for log in self.online_logs():
            try:
                yield delete_old_segments(log, now_ms)
            except KafkaError as error:
                _log.warning("retention.failed", partition=str(log.topic_partition), error=error.message)
            except OSError as error:
                log.log_dir.storage_error(error)

    def remove_expired_producers(self, now_ms: TimestampMs) -> Iterator[int]:
        """A step for each log: yields the number of removed producers."""
        return (log.producers.remove_expired(now_ms) for log in self.online_logs())

    def logs_to_flush(self, now_ms: TimestampMs) -> list[PartitionLog]:
        """Those whose `flush.ms` is over: `prepare_flush` and sync them."""
        return [log for log in self.online_logs() if log.flush_due(now_ms)]

    def removals(self, now_ms: TimestampMs) -> Iterator[Removal]:
        """Deleted segments and partitions whose delay is over. The caller runs each removal, in a thread if it likes,
        before it takes the next. Keys that could not be destroyed at once are destroyed first.
        """
        self._keys.destroy_remaining()
        for log_dir in self.online_directories():
            yield from log_dir.removals(now_ms)
        yield from self._discarded.removals(now_ms)

    # A checkpoint that only saves work after a crash need not wait for the disk. Without `sync`, a power cut may leave
    # an older checkpoint, and recovery then reads more of the log.

    def checkpoint_recovery_points(self, *, sync: bool = True) -> None:
        checkpoint(RECOVERY_POINT_CHECKPOINT, self.online_directories(), self._all_logs(), sync=sync)

    def checkpoint_log_start_offsets(self, *, sync: bool = True) -> list[LogDirectory]:
        """Returns the directories that refused the write."""
        return checkpoint(LOG_START_OFFSET_CHECKPOINT, self.online_directories(), self._all_logs(), sync=sync)

    def checkpoint_high_watermarks(self, *, sync: bool = True) -> None:
        checkpoint(HIGH_WATERMARK_CHECKPOINT, self.online_directories(), self._all_logs(), sync=sync)

    def checkpoint_deletion(self) -> None:
        """After logs were set aside: a namesake that is created next must not inherit their offsets in a crash."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    def _checkpoint_directory(self, log_dir: LogDirectory) -> None:
        """All checkpoints of one directory, synced. KafkaError when that fails."""
        log_dir.check_online()
        try:
            write_all(log_dir, self._all_logs())
        except OSError as error:
            raise log_dir.storage_error(error) from error

    def describe(self) -> list[LogDirDescription]:
        """What DescribeLogDirs answers, one entry per directory."""
        return [describe_directory(log_dir, self._logs.values(), self.moves.futures()) for log_dir in self.directories]

    # ------------------------------------------------------------------------------------------------ ending

    def _directory_failed(self, log_dir: LogDirectory) -> None:
        partitions = [partition for partition, log in self._logs.items() if log.log_dir is log_dir]
        for partition in partitions:
            self._logs[partition].forget()
        self.moves.directory_failed(log_dir)
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
        if self.loaded:
            self._mark_clean(broker_epoch)
        for log in self._all_logs():
            log.forget()
        self._release_locks()

    def _mark_clean(self, broker_epoch: int) -> None:
        """The marker means that the checkpoints are as new as the logs: a directory that refuses a checkpoint gets no
        marker.
        """
        present = self._all_logs()
        for log_dir in self.online_directories():
            try:
                write_all(log_dir, present)
                write_clean_shutdown(self._storage, log_dir.path, broker_epoch)
            except OSError as error:
                log_dir.fail(error)

    def abandon(self) -> None:
        """After a failed start: release everything unchanged and without a clean marker, so that the next start
        recovers.
        """
        for log in self._all_logs():
            log.forget()
        self._release_locks()

    def _all_logs(self) -> list[PartitionLog]:
        return [*self._logs.values(), *self.moves.futures(), *self.moves.orphans.values()]

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
