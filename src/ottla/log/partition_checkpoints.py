"""Which offset each checkpoint of a log directory holds for a partition's log; writes a checkpoint for all logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.log.file_names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.model.ids import Offset, TopicPartition


def _hidden_start(log: PartitionLog) -> Offset | None:
    """The log start offset, or None when it is the base offset in the first segment's name."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


_OFFSETS: dict[str, Callable[[PartitionLog], Offset | None]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _hidden_start,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark,
    CLEANER_CHECKPOINT: lambda log: log.offsets.cleaned_up_to or None,
}


def offsets_of(name: str, log_dir: LogDirectory, logs: Iterable[PartitionLog]) -> dict[TopicPartition, Offset]:
    """The entries that the directory's checkpoint `name` must hold now. A directory holds a partition's log or its
    copy, never both.
    """
    value = _OFFSETS[name]
    pairs = ((log.topic_partition, value(log)) for log in logs if log.log_dir is log_dir)
    return {partition: offset for partition, offset in pairs if offset is not None}


def checkpoint(
    name: str, directories: Iterable[LogDirectory], logs: Iterable[PartitionLog], *, sync: bool = True
) -> list[LogDirectory]:
    """Write the checkpoint `name` of each directory. A directory that refuses the write does not stop the other
    directories; returns the directories that refused.
    """
    present, refusing = list(logs), []
    for log_dir in directories:
        try:
            log_dir.checkpoints.write(name, offsets_of(name, log_dir, present), sync=sync)
        except OSError as error:
            log_dir.storage_error(error)
            refusing.append(log_dir)
    return refusing


def write_all(log_dir: LogDirectory, logs: Iterable[PartitionLog]) -> None:
    """All checkpoints of one directory, synced: none keeps an entry of a log that is not there. OSError when that fails."""
    present = list(logs)
    for name in _OFFSETS:
        log_dir.checkpoints.write(name, offsets_of(name, log_dir, present))


def follow_cleaner_checkpoint(log_dir: LogDirectory, logs: Mapping[TopicPartition, PartitionLog]) -> None:
    """After a load: how far each log is clean.

    An entry outside of its log is of a former log with the same name, or of records that a crash took. The entry leaves
    the file, or it would count again once the log has grown past it.
    """
    offsets = log_dir.checkpoints.content(CLEANER_CHECKPOINT)
    for partition, offset in offsets.items():
        log = logs.get(partition)
        if log is not None and log.log_dir is log_dir and log.log_start_offset <= offset <= log.log_end_offset:
            log.offsets.cleaned_up_to = offset
    if offsets_of(CLEANER_CHECKPOINT, log_dir, logs.values()) != offsets:
        checkpoint(CLEANER_CHECKPOINT, [log_dir], logs.values())
