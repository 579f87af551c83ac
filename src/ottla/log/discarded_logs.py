"""Folders of logs that left the node: renamed at once, removed after `file.delete.delay.ms`.

A full disk may refuse the rename: the folder keeps its name, no log may be created under that name, and the rename is
retried. A crash in between loses no records and revives no log: the next start finds the folder again. The metadata or
a later log of the same partition then decides against the folder (`log_choice`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ottla.env.logging import get_logger
from ottla.env.seams import RandomSource, Storage
from ottla.log.file_names import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, unique_dir
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.removals import Removal
from ottla.model.errors import KafkaError
from ottla.model.ids import TimestampMs, TopicPartition

_log = get_logger(__name__)


class DiscardedLogs:
    __slots__ = ("_half_made", "_random", "_removals", "_renames", "_storage")

    def __init__(self, storage: Storage, random: RandomSource) -> None:
        self._storage = storage
        self._random = random
        self._removals: list[tuple[TimestampMs, LogDirectory, str]] = []
        self._renames: list[tuple[PartitionLog, str]] = []
        """Logs whose folder still has to get the suffix."""
        self._half_made: set[str] = set()

    def discard(self, log: PartitionLog, suffix: str, now_ms: TimestampMs) -> None:
        """Rename the folder of a log that the store does not hold any more; `-delete` folders are removed later."""
        log.forget()
        log.discarded = True
        try:
            self._rename(log, suffix, now_ms)
        except KafkaError as error:
            if not log.log_dir.offline:
                _log.warning("log.not_renamed", directory=log.directory, reason=error.message)
                self._renames.append((log, suffix))

    def _rename(self, log: PartitionLog, suffix: str, now_ms: TimestampMs) -> None:
        log_dir = log.log_dir
        if log_dir.offline:
            return
        name = unique_dir(log.topic_partition, self._random.token_bytes(16), suffix)
        log.rename_directory(f"{log_dir.path}/{name}")
        if suffix == DELETE_DIR_SUFFIX:
            self.remove_later(log_dir, log.directory, now_ms + log.config.file_delete_delay_ms)

    def remove_later(self, log_dir: LogDirectory, directory: str, due_ms: TimestampMs) -> None:
        self._removals.append((due_ms, log_dir, directory))

    def clear_name(self, log_dir: LogDirectory, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Before a log takes its partition's name in `log_dir`: nothing that was discarded may have that name. KafkaError
        when the folder that has it cannot be renamed."""
        path = f"{log_dir.path}/{partition}"
        for waiting in [renaming for renaming in self._renames if renaming[0].directory == path]:
            self._rename(*waiting, now_ms)
            self._renames.remove(waiting)
        try:
            log_dir.check_folder(str(partition))  # the folder of another topic is no stray
            if path in self._half_made:
                self._storage.remove_tree(path)
                self._half_made.discard(path)
            if self._storage.exists(path):
                name = unique_dir(partition, self._random.token_bytes(16), STRAY_DIR_SUFFIX)
                self._storage.rename(path, f"{log_dir.path}/{name}")
                _log.warning("log.set_aside", directory=f"{log_dir.path}/{name}")
        except OSError as error:
            raise log_dir.storage_error(error) from error

    def drop_half_made(self, directory: str) -> None:
        """A folder that could not be made whole; what cannot be removed now goes before the name is used again."""
        self._half_made.add(directory)
        with contextlib.suppress(OSError):
            self._storage.remove_tree(directory)
            self._half_made.discard(directory)

    def removals(self, now_ms: TimestampMs) -> Iterator[Removal]:
        """The folders whose delay is over. A folder that cannot be removed now is tried again at the next turn."""
        self._retry_renames(now_ms)
        due = [removal for removal in self._removals if removal[0] <= now_ms]
        self._removals = [removal for removal in self._removals if removal[0] > now_ms]
        for due_ms, log_dir, directory in due:
            if log_dir.offline:
                continue
            removal = Removal(self._storage.remove_tree, directory)
            yield removal
            if removal.error is not None:
                log_dir.storage_error(removal.error)
                self._removals.append((due_ms, log_dir, directory))

    def _retry_renames(self, now_ms: TimestampMs) -> None:
        waiting, self._renames = self._renames, []
        for log, suffix in waiting:
            self.discard(log, suffix, now_ms)
