"""The flush of a log: which files a sync must cover before the recovery point may move.

A plan lists the files on the loop, a thread may carry the plan out, and the recovery point moves only afterwards. A
crash therefore never finds a recovery point above bytes that were not synced. The order of a plan is: segments, files
beside them, directories.
"""

from __future__ import annotations

import contextlib

from ottla.env.seams import Storage
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_names import INDEX_SUFFIXES, PARTITION_METADATA, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from ottla.log.log_directory import lacks_descriptors
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_segments import LogSegments
from ottla.log.open_files import SharedFile
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.model.ids import Offset, TimestampMs


class FlushPlan:
    """What has to reach the disk before the recovery point may move to `offset`.

    `sync` is the blocking part: it touches nothing of the log and may run in a thread. Hand the plan to
    `PartitionLog.flushed` afterwards.
    """

    __slots__ = ("_directories", "_files", "_paths", "_storage", "generation", "offset")

    def __init__(
        self,
        storage: Storage,
        offset: Offset,
        generation: int,
        files: list[SharedFile],
        paths: list[str],
        directories: list[str],
    ) -> None:
        self._storage = storage
        self._files = files
        self._paths = paths
        self._directories = directories
        self.offset = offset
        self.generation = generation

    def sync(self) -> None:
        """OSError means that the directory is failing: give it to `PartitionLog.flush_failed`.

        A name that is gone is not a failure: the segment or the whole partition was deleted meanwhile.
        """
        for shared in self._files:
            shared.file.sync()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                file = self._storage.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._storage.sync_dir(directory)


class LogFlush:
    __slots__ = ("_epochs", "_offsets", "_segments", "_snapshots", "last_flushed_ms")

    def __init__(
        self, segments: LogSegments, offsets: LogOffsets, epochs: EpochCache, snapshots: ProducerSnapshots
    ) -> None:
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._snapshots = snapshots
        self.last_flushed_ms: TimestampMs = 0

    def plan(self, up_to: Offset, *more_paths: str) -> FlushPlan:
        """A plan with the segments that hold [recovery_point, up_to), all unsynced files beside them and `more_paths`.
        After an OSError there is no plan, and the next plan has the same files.
        """
        segments, recovery_point = self._segments, self._offsets.recovery_point
        paths = list(dict.fromkeys([*self._unsynced_paths(), *more_paths]))
        unsynced = segments.between(recovery_point, up_to)
        is_cut = self._offsets.is_cut
        if is_cut and segments.active not in unsynced:
            unsynced.append(segments.active)
        new_names = bool(paths) or is_cut
        for segment in unsynced:
            segment.flush_indexes()
            new_names |= segment.base_offset >= recovery_point
            if segment is not segments.active:
                # Recovery rebuilds the active segment's indexes; those of older ones are trusted.
                paths += [segment.path(kind) for kind in INDEX_SUFFIXES]
        directories = [segments.directory] if new_names else []
        log_dir = segments.log_dir
        if new_names and recovery_point <= segments.first_base_offset:
            # Never synced before: the folder's own name may not be on disk either.
            directories.append(log_dir.path)
        files = [segment.shared_file() for segment in unsynced]
        plan = FlushPlan(log_dir.storage, up_to, self._offsets.generation, files, paths, directories)
        self._epochs.dirty = False  # the plan is synced, or `failed` is called
        return plan

    def _unsynced_paths(self) -> list[str]:
        """Files beside the segments that were written since the recovery point moved last."""
        recovery_point = self._offsets.recovery_point
        paths = [self._snapshots.path(offset) for offset in self._snapshots.offsets if offset > recovery_point]
        if recovery_point <= self._segments.first_base_offset:
            paths.append(f"{self._segments.directory}/{PARTITION_METADATA}")
        if self._epochs.dirty:
            paths.append(self._epochs.path)
        return paths

    def closing_plan(self, producers: ProducerState) -> FlushPlan | None:
        """Write what is only in memory; None when all is on disk already."""
        self._epochs.write_changes()
        new_snapshot = self._snapshots.write(producers)
        active = self._segments.active
        active.finish_indexes()
        end = self._offsets.log_end_offset
        is_synced = self._offsets.recovery_point == end and not self._offsets.is_cut
        if is_synced and (new_snapshot is None or not producers.producers):
            # A snapshot of no producers is as good as none.
            return None
        # The offset index only saves time: what a power cut takes from it is found again by reading.
        return self.plan(end, *(active.path(kind) for kind in (TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)))

    def done(self, plan: FlushPlan, now_ms: TimestampMs) -> None:
        """`plan.sync()` returned."""
        self._offsets.flushed(plan.offset, plan.generation)
        self.last_flushed_ms = now_ms

    def failed(self, error: OSError) -> None:
        """After a failed sync the kernel may have dropped the pages: nothing on this directory is certain any more.

        Without a free descriptor there was no sync: the recovery point stays, and a later plan has the same files.
        """
        if lacks_descriptors(error):
            self._epochs.dirty = True
        else:
            self._segments.log_dir.fail(error)

    def due(self, now_ms: TimestampMs) -> bool:
        """`flush.ms` has passed since the last sync and there is something to sync."""
        offsets = self._offsets
        if offsets.recovery_point >= offsets.log_end_offset:
            return False
        # A last sync in the future: the wall clock was set back.
        return not 0 <= now_ms - self.last_flushed_ms < self._segments.config.flush_ms
