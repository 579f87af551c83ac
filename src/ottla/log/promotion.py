"""The promotion of a copy: the log in a new directory takes the name, producers and epochs of the log that it copied.

Everything that a start needs is synced before the rename, and the rename is synced before the copy serves.
`ottla.log.moves` has the whole order, with the checkpoints of both directories.
"""

from __future__ import annotations

from ottla.log.epoch_cache import EpochCache
from ottla.log.file_names import PARTITION_METADATA
from ottla.log.log_directory import lacks_descriptors
from ottla.log.partition_log import PartitionLog
from ottla.model.ids import TimestampMs


def prepare_promotion(copy: PartitionLog, replaced: PartitionLog, now_ms: TimestampMs) -> None:
    """Write and sync all that a start needs to take the copy in the place of `replaced`, which it equals. Blocks.

    The producers and leader epochs are those of `replaced`: its records below the log start offset, and batches that
    compaction removed, are not in the copy.
    """
    copy.check_usable()
    log_dir = copy.log_dir
    with log_dir.storage_errors():
        copy.snapshots.replace(replaced.producers)
        EpochCache(log_dir.storage, copy.directory, replaced.epochs.entries).write()
        copy.segments.flush_indexes()
    end_snapshot = copy.snapshots.path(copy.offsets.log_end_offset)
    copy.flush_with([end_snapshot, f"{copy.directory}/{PARTITION_METADATA}", copy.epochs.path], now_ms)


def promote(copy: PartitionLog, replaced: PartitionLog) -> None:
    """Take the partition's name after `prepare_promotion`. After KafkaError, the copy is still a copy, or its directory
    is offline, because the new name may not be on disk.
    """
    log_dir = copy.log_dir
    before = copy.directory
    copy.rename_directory(f"{log_dir.path}/{copy.topic_partition}")
    try:
        log_dir.storage.sync_dir(log_dir.path)
    except OSError as error:
        if lacks_descriptors(error):
            copy.rename_directory(before)
        raise copy.flush_failed(error) from error
    copy.producers.replace_by(replaced.producers)
    copy.producers.verification_enabled = replaced.producers.verification_enabled
    copy.offsets.producers_changed()
    copy.epochs.replace_by(replaced.epochs.entries)
