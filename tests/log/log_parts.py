"""The parts of a log without the log: on a fake disk that lists its operations and fails on demand."""

from __future__ import annotations

import errno
import random

from ottla.env.config import TopicConfig
from ottla.log.epoch_cache import EpochCache
from ottla.log.erasure_notes import ErasureNotes
from ottla.log.log_directory import LogDirectory
from ottla.log.log_offsets import LogOffsets
from ottla.log.log_roll import LogRoll
from ottla.log.log_segments import LogSegments
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.log.segment import Segment
from ottla.protocol.records_header import parse_header
from ottla.simulation.disk import FakeDisk

from .partition_files import NOW, PARTITION, batch

ROOT = "/disk"
FOLDER = f"{ROOT}/{PARTITION}"
CONFIG = TopicConfig(index_interval_bytes=100, file_delete_delay_ms=1000)


class ListingDisk(FakeDisk):
    """Lists renames, removals and syncs; `fail_at` names the end of a path whose next rename or creation fails."""

    def __init__(self) -> None:
        super().__init__(random.Random(1), lambda: NOW)
        self.operations: list[str] = []
        self.fail_at: str | None = None

    def _check(self, path: str) -> None:
        if self.fail_at is not None and path.endswith(self.fail_at):
            self.fail_at = None
            raise OSError(errno.ENOSPC, "injected")

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        if create and path not in self.files:
            self._check(path)
        return super().open(path, create=create)

    def rename(self, source: str, target: str) -> None:
        self._check(target)
        super().rename(source, target)
        self.operations.append(f"rename {target.removeprefix(FOLDER + '/')}")

    def remove(self, path: str) -> None:
        if path in self.files:
            self.operations.append(f"remove {path.removeprefix(FOLDER + '/')}")
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.operations.append(f"sync {path}")


class Parts:
    """The state parts of a log that has an empty segment at `start`."""

    def __init__(self, start: int = 0, config: TopicConfig = CONFIG) -> None:
        self.disk = ListingDisk()
        self.disk.make_dirs(FOLDER)
        self.log_dir = LogDirectory(self.disk, ROOT)
        first = Segment(self.disk, self.log_dir.open_files, FOLDER, start, created_ms=NOW)
        first.create()
        self.segments = LogSegments(self.log_dir, FOLDER, PARTITION, config, [first])
        self.producers = ProducerState(start)
        self.offsets = LogOffsets(self.producers, log_end_offset=start, log_start_offset=start, recovery_point=start)
        self.epochs = EpochCache(self.disk, FOLDER)
        self.snapshots = ProducerSnapshots(self.disk, FOLDER, [])
        self.erasure_notes = ErasureNotes(self.disk, FOLDER, PARTITION.partition, ())
        self.roll = LogRoll(self.segments, self.offsets, self.producers, self.snapshots)

    def append(self, *values: bytes, producer_id: int = -1, leader_epoch: int = 0, roll: bool = False) -> None:
        """One batch at the end, in a new segment with `roll`."""
        if roll:
            self.roll.at_end(NOW)
        offset = self.offsets.log_end_offset
        sequence = offset if producer_id >= 0 else -1
        data = batch(
            *values,
            base_offset=offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            sequence=sequence,
        )
        header = parse_header(data, 0)
        position = self.segments.active.size
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign_and_write([(leader_epoch, offset)])
        self.segments.active.write(data, len(data))
        self.segments.active.note_batch(position, header.last_offset, header, CONFIG.index_interval_bytes)
        if producer_id >= 0:
            self.producers.update(header, offset)
        self.offsets.log_end_offset = self.producers.end_offset = header.last_offset + 1

    def fill(self, segments: int, batches: int = 2) -> None:
        """Batches of one record each."""
        for number in range(segments):
            for index in range(batches):
                self.append(b"x" * 40, roll=bool(number) and index == 0)

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    def names(self, *suffixes: str) -> list[str]:
        names = (path.rpartition("/")[2] for path in self.disk.files if path.startswith(FOLDER))
        return sorted(name for name in names if not suffixes or name.endswith(suffixes))
