"""A partition's log from its folder: after a clean stop by trusting it, after a crash by reading it again.

After a crash, recovery checks every batch from the segment of the recovery point on (length, magic, CRC, rising
offsets). The log ends before the first batch that fails, and everything after that point is dropped. The same walk
rebuilds the indexes, the leader epochs and the producer state. Nothing is synced here: the recovery point stays where
it was, so a second crash starts the same work again. Files that were synced before the stop are trusted: if one of them
is damaged, only that file loses data (`salvage`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.env.config import TopicConfig
from ottla.env.logging import get_logger
from ottla.log.checkpoints import CorruptCheckpointError, read_partition_metadata, write_partition_metadata
from ottla.log.epoch_cache import EpochCache, read_epoch_cache
from ottla.log.erasure_notes import notes_below, read_erasure_notes, write_erasure_notes
from ottla.log.file_names import (
    ERASURE_CHECKPOINT,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_name,
)
from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_rebuild import load_snapshot, rebuild_producer_state, replay_segments
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS, ProducerState
from ottla.log.salvage import indexes_sane, rebuild_epochs, rebuild_indexes, sound_end
from ottla.log.segment import Segment
from ottla.log.segment_recovery import recover_segment
from ottla.log.temporary_files import tidy
from ottla.model.ids import ZERO_UUID, Offset, TimestampMs, TopicPartition, Uuid

_log = get_logger(__name__)
EVERYTHING: Offset = 1 << 63
"""An offset past any log: after a clean stop, everything up to it is trusted."""


@dataclass(slots=True, kw_only=True)
class _Folder:
    """The contents of a partition's folder, as found and as changed by recovery."""

    log_dir: LogDirectory
    path: str
    config: TopicConfig
    segments: list[Segment]
    snapshots: ProducerSnapshots
    epochs: EpochCache
    log_start_offset: Offset
    now_ms: TimestampMs
    expiration_ms: int

    def first_base(self) -> Offset:
        return self.segments[0].base_offset if self.segments else self.log_start_offset


def create_partition_log(
    log_dir: LogDirectory,
    directory: str,
    topic_partition: TopicPartition,
    config: TopicConfig,
    *,
    now_ms: TimestampMs,
    topic_id: Uuid = ZERO_UUID,
    start_offset: Offset = 0,
) -> PartitionLog:
    """A new, empty log in a new folder. OSError when it cannot be made; then no folder is left, or an empty one."""
    storage = log_dir.storage
    log_dir.check_folder(str(topic_partition))  # also for a copy, which gets this name at the end of its move
    segment = Segment(storage, log_dir.open_files, directory, start_offset, created_ms=now_ms)
    try:
        storage.make_dirs(directory)
        segment.create()
        if topic_id != ZERO_UUID:
            write_partition_metadata(storage, directory, topic_id)
    except OSError:
        with contextlib.suppress(OSError):
            segment.remove_files()
            storage.remove_tree(directory)
        raise
    return PartitionLog(
        log_dir,
        directory,
        topic_partition,
        config,
        [segment],
        log_end_offset=start_offset,
        recovery_point=start_offset,
        log_start_offset=start_offset,
        topic_id=topic_id,
    )


def load_partition_log(
    log_dir: LogDirectory,
    directory: str,
    topic_partition: TopicPartition,
    config: TopicConfig,
    *,
    now_ms: TimestampMs,
    clean: bool,
    recovery_point: Offset = 0,
    log_start_offset: Offset = 0,
    compacted_up_to: Offset = 0,
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
) -> PartitionLog:
    """Load the log in the folder. `clean`: whether the directory has the marker of a clean shutdown. OSError when the
    disk fails.

    Below `compacted_up_to`, holes between segments are compaction's, also where the topic is not compacted any more.
    """
    names = tidy(log_dir, directory)
    segments = _find_segments(log_dir, directory, names)
    epochs, epochs_lost = _read_epochs(log_dir, directory, empty=not any(segment.size for segment in segments))
    size_bytes = sum(segment.size for segment in segments)
    folder = _Folder(
        log_dir=log_dir,
        path=directory,
        config=config,
        segments=segments,
        snapshots=ProducerSnapshots(log_dir.storage, directory, _snapshot_offsets(names)),
        epochs=epochs,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        expiration_ms=producer_id_expiration_ms,
    )
    if epochs_lost:
        rebuild_epochs(folder.segments, epochs)
    log_start = max(log_start_offset, folder.first_base())
    # A clean stop has synced everything: the recovery point is then where the log ended.
    known_end = recovery_point if clean and recovery_point else EVERYTHING
    for segment in _damaged_indexes(folder, names, EVERYTHING if clean else recovery_point):
        _rebuild(folder, segment, log_start, known_end)
    if clean:
        end, producers = _load_clean(folder, log_start, known_end)
        recovery_point = end
    else:
        gaps_up_to = EVERYTHING if config.compact else max(recovery_point, compacted_up_to)
        end, producers = _recover(folder, recovery_point, log_start, gaps_up_to)
        recovery_point = min(recovery_point, end)
    if not folder.segments or end < log_start:
        end, producers = _start_over(folder, log_start)
        recovery_point = end
    _settle(folder, log_start, end)
    log = PartitionLog(
        log_dir,
        directory,
        topic_partition,
        config,
        folder.segments,
        log_end_offset=end,
        recovery_point=recovery_point,
        log_start_offset=log_start,
        topic_id=_read_topic_id(log_dir, directory, names),
        epochs=epochs,
        producers=producers,
        snapshots=folder.snapshots,
        erased=_read_erased(folder, topic_partition.partition, end) if ERASURE_CHECKPOINT in names else (),
    )
    log.producers.expiration_ms = producer_id_expiration_ms
    log.offsets.is_cut = log.size_bytes < size_bytes
    # Most partitions of a large node are idle: the first append or read opens what it needs.
    log.forget()
    return log


def _read_epochs(log_dir: LogDirectory, directory: str, *, empty: bool) -> tuple[EpochCache, bool]:
    """The cache, and whether the file is lost. A log without records has none, or an empty one that Kafka created."""
    try:
        return read_epoch_cache(log_dir.storage, directory), False
    except CorruptCheckpointError as error:
        if empty:
            return EpochCache(log_dir.storage, directory), False
        _log.warning("epochs.rejected", directory=directory, error=str(error))
        return EpochCache(log_dir.storage, directory), True


def _read_topic_id(log_dir: LogDirectory, directory: str, names: Sequence[str]) -> Uuid:
    if PARTITION_METADATA not in names:
        return ZERO_UUID
    try:
        return read_partition_metadata(log_dir.storage, directory)
    except CorruptCheckpointError as error:
        # An empty file is a crash before the first sync; the leader assigns the id again.
        _log.warning("topic_id.rejected", directory=directory, error=str(error))
        return ZERO_UUID


def _read_erased(folder: _Folder, partition: int, end: Offset) -> tuple[str, ...]:
    """What the crash took from the log's end is fetched again, and looked at again."""
    storage = folder.log_dir.storage
    noted = read_erasure_notes(storage, folder.path)
    kept = notes_below(noted, partition, end)
    if kept != noted:
        write_erasure_notes(storage, folder.path, kept)
    return kept


def _find_segments(log_dir: LogDirectory, directory: str, names: Sequence[str]) -> list[Segment]:
    storage = log_dir.storage
    segments = []
    for name in names:
        base = base_offset_of(name)
        if base is None:
            continue
        path = f"{directory}/{name}"
        if name.endswith(LOG_SUFFIX):
            size = storage.size(path)
            created_ms = storage.modified_ms(path)
            segments.append(Segment(storage, log_dir.open_files, directory, base, size=size, created_ms=created_ms))
        elif name.endswith(INDEX_SUFFIXES) and segment_name(base) + LOG_SUFFIX not in names:
            _log.warning("index.orphaned", path=path)
            storage.remove(path)
    segments.sort(key=lambda segment: segment.base_offset)
    return segments


def _snapshot_offsets(names: Sequence[str]) -> list[Offset]:
    return [base for name in names if name.endswith(SNAPSHOT_SUFFIX) and (base := base_offset_of(name)) is not None]


def _damaged_indexes(folder: _Folder, names: Sequence[str], up_to: Offset) -> list[Segment]:
    """The segments below `up_to` whose indexes are missing or cannot be right."""
    present = set(names)
    damaged = []
    for number, segment in enumerate(folder.segments):
        following = folder.segments[number + 1].base_offset if number + 1 < len(folder.segments) else EVERYTHING
        if following > up_to:
            break
        name = segment_name(segment.base_offset)
        whole = name + INDEX_SUFFIX in present and name + TIME_INDEX_SUFFIX in present
        if not whole or not indexes_sane(folder.log_dir.storage, segment):
            _log.warning("index.damaged", path=segment.path(LOG_SUFFIX))
            damaged.append(segment)
    return damaged


def _rebuild(folder: _Folder, segment: Segment, log_start: Offset, known_end: Offset) -> Offset:
    """New indexes for a segment that is trusted; the offset after its last batch."""
    segments, base = folder.segments, segment.base_offset
    number = segments.index(segment)
    last = number + 1 == len(segments)
    producers = load_snapshot(folder.snapshots, log_start, max(base, log_start), folder.now_ms, folder.expiration_ms)
    replay_segments(producers, segments[:number], base)
    limit = EVERYTHING if last else segments[number + 1].base_offset
    end, size = rebuild_indexes(segment, limit, known_end, producers, folder.config.index_interval_bytes)
    if last and size < segment.size:
        # No batch is behind this: the next one that is appended must be found.
        _log.warning("log.cut", path=segment.path(LOG_SUFFIX), bytes=segment.size - size, end=end)
        segment.cut(size)
    return end


def _load_clean(folder: _Folder, log_start: Offset, known_end: Offset) -> tuple[Offset, ProducerState]:
    if not folder.segments:
        return log_start, ProducerState(log_start)
    end = sound_end(folder.segments[-1], known_end)
    if end is None:
        end = _rebuild(folder, folder.segments[-1], log_start, known_end)
    if not folder.snapshots.offsets:
        # Kafka's own rule: no snapshot after a clean shutdown means that there are no producers.
        return end, ProducerState(end)
    producers = rebuild_producer_state(
        folder.snapshots, folder.segments, log_start, end, folder.now_ms, folder.expiration_ms
    )
    return end, producers


def _recover(
    folder: _Folder, from_offset: Offset, log_start: Offset, gaps_up_to: Offset
) -> tuple[Offset, ProducerState]:
    """Walk the segments that may hold offsets from `from_offset` on; the log ends at the first flaw.

    Above `gaps_up_to`, a gap between two segments is such a flaw: the file system lost the last batches of the earlier
    segment and kept the later file. Kafka continues after the gap. A replica must not, or it would never fetch the
    missing batches. Compaction makes gaps of its own.
    """
    segments = folder.segments
    walked = [
        segment
        for number, segment in enumerate(segments)
        if number + 1 == len(segments) or segments[number + 1].base_offset > from_offset
    ]
    if not walked:
        return log_start, ProducerState(log_start)
    first = walked[0].base_offset
    producers = load_snapshot(folder.snapshots, log_start, max(first, log_start), folder.now_ms, folder.expiration_ms)
    replay_segments(producers, segments, first)
    end = first
    for number, segment in enumerate(walked):
        if segment.base_offset > end and segment.base_offset > gaps_up_to:
            _log.warning("log.cut", path=segment.path(LOG_SUFFIX), end=end, next=segment.base_offset)
            _drop_after(folder, walked[number - 1])
            break
        end = max(end, segment.base_offset)
        end, dropped = recover_segment(segment, end, folder.epochs, producers, folder.config.index_interval_bytes)
        if dropped:
            _log.warning("log.cut", path=segment.path(LOG_SUFFIX), bytes=dropped, end=end)
            _drop_after(folder, segment)
            break
    for segment in folder.segments[:-1]:
        segment.finish_indexes()
    return end, producers


def _drop_after(folder: _Folder, last: Segment) -> None:
    keep = folder.segments.index(last) + 1
    for segment in folder.segments[keep:]:
        _log.warning("segment.dropped", path=segment.path(LOG_SUFFIX), bytes=segment.size)
        segment.remove_files()
    del folder.segments[keep:]


def _start_over(folder: _Folder, log_start: Offset) -> tuple[Offset, ProducerState]:
    """No segments, or all end before the log start: an empty log at the log start."""
    for segment in folder.segments:
        segment.remove_files()
    segment = Segment(
        folder.log_dir.storage, folder.log_dir.open_files, folder.path, log_start, created_ms=folder.now_ms
    )
    segment.create()
    folder.segments[:] = [segment]
    folder.epochs.clear()
    folder.snapshots.remove_outside(log_start, log_start - 1)
    return log_start, ProducerState(log_start)


def _settle(folder: _Folder, log_start: Offset, end: Offset) -> None:
    """Files beside the segments agree with where the log now starts and ends."""
    epochs = folder.epochs
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start)
    epochs.write_changes()
    for offset in [offset for offset in folder.snapshots.offsets if offset > end]:
        folder.snapshots.remove(offset)
    folder.snapshots.remove_strays({segment.base_offset for segment in folder.segments})
