"""The offset checkpoints of one log directory: what they hold, and what a power cut may leave of them.

Entries name a topic and a partition, no incarnation: they outlive the log that they were written for. Two rules keep
them from a log that they do not describe, whatever crashes in between. Before a log is created in the directory, every
entry without a log is removed (`forget_absent`). Before a log is cut, every entry of it above the cut is lowered
(`lower`). Both are on disk before the log changes, and both write only what the disk may hold otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.env.logging import get_logger
from ottla.env.seams import Storage
from ottla.log.checkpoints import CorruptCheckpointError, read_offsets, write_offsets
from ottla.log.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.model.ids import Offset, TopicPartition

_log = get_logger(__name__)
_NAMES = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)


class DirectoryCheckpoints:
    __slots__ = ("_on_disk", "_path", "_storage", "_synced", "_written")

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._written: dict[str, dict[TopicPartition, Offset]] = {name: {} for name in _NAMES}
        """The last content of each file."""
        self._on_disk: dict[str, dict[TopicPartition, Offset]] = {name: {} for name in _NAMES}
        """The highest offset of each entry that a power cut may bring back."""
        self._synced: dict[str, bool] = {}
        """Of the files that were written since the start: whether the last content is certain to be on disk."""

    def read(self, name: str) -> dict[TopicPartition, Offset]:
        """The file's entries; none when it is damaged. OSError when it cannot be read, unless compaction alone needs it."""
        refused = CorruptCheckpointError if name != CLEANER_CHECKPOINT else (CorruptCheckpointError, OSError)
        try:
            offsets = read_offsets(self._storage, f"{self._path}/{name}")
        except refused as error:
            _log.warning("checkpoint.rejected", error=str(error))
            offsets = {}
        self._written[name] = dict(offsets)
        self._on_disk[name] = dict(offsets)
        return offsets

    def content(self, name: str) -> Mapping[TopicPartition, Offset]:
        """What was read or written last."""
        return self._written[name]

    def write(self, name: str, offsets: Mapping[TopicPartition, Offset], *, sync: bool = True) -> None:
        """Replace the file, unless it has the same content already. Without `sync`, a power cut may leave an older
        file, and on some file systems an empty one; after an OSError it may leave either content.
        """
        synced = self._synced.pop(name, None)
        if synced is not None and synced >= sync and self._written[name] == offsets:
            self._synced[name] = synced
            return
        on_disk = self._on_disk[name]
        for partition, offset in offsets.items():
            if on_disk.get(partition, -1) < offset:
                on_disk[partition] = offset
        write_offsets(self._storage, f"{self._path}/{name}", offsets, sync=sync)
        self._written[name] = dict(offsets)
        self._synced[name] = sync
        if sync:
            self._on_disk[name] = dict(offsets)

    def forget_absent(self, partition: TopicPartition, present: Callable[[], set[TopicPartition]]) -> None:
        """A log of `partition` is about to be created: it starts without entries.

        All entries but those of `present` go in the same write, because a topic is created with many partitions at once.
        """
        for name in _NAMES:
            if partition in self._on_disk[name]:
                logs = present()
                self.write(name, {key: offset for key, offset in self._written[name].items() if key in logs})

    def lower(self, partition: TopicPartition, offset: Offset, log_start_offset: Offset) -> None:
        """The partition's log is about to be cut at `offset`: no entry may hold a higher offset, and the entry of the log
        start none above `log_start_offset`.
        """
        for name in _NAMES:
            highest = log_start_offset if name == LOG_START_OFFSET_CHECKPOINT else offset
            if self._on_disk[name].get(partition, -1) > highest:
                written = self._written[name]
                self.write(name, {**written, partition: min(written.get(partition, highest), highest)})
