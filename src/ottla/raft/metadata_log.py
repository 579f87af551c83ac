"""`__cluster_metadata-0`: the segments of the metadata log as one log, with Kafka's file names around it.

An append reaches the page cache; `sync` makes it durable and may run on a second thread, because it uses only the file.
Opening checks every batch. A torn tail of the last segment is cut off: it was never acknowledged. Damage in an earlier
segment is an error, because that segment was synced when it was finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ottla.env.logging import get_logger
from ottla.env.seams import Clock, Storage
from ottla.model.ids import METADATA_TOPIC_ID, uuid_to_str
from ottla.protocol.records import BatchHeader, parse_header
from ottla.raft.epochs import LeaderEpochs
from ottla.raft.errors import MetadataLogError
from ottla.raft.segment import MetadataSegment, segment_path

_PARTITION_METADATA = f"version: 0\ntopic_id: {uuid_to_str(METADATA_TOPIC_ID)}"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    segment_bytes: int = 1 << 30
    """metadata.log.segment.bytes"""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """metadata.log.segment.ms"""
    is_plain: Callable[[str], bool] | None = None
    """With encryption at rest: whether a file is older than the encryption, so that no append may follow."""


class MetadataLog:
    def __init__(self, storage: Storage, log_dir: str, clock: Clock, config: MetadataLogConfig) -> None:
        self._storage = storage
        self.log_dir = log_dir
        self._clock = clock
        self._config = config
        self.epochs = LeaderEpochs(storage, log_dir)
        self._segments: list[MetadataSegment] = []
        self._plain: set[int] = set()
        """Base offsets of the segments that hold plain text while encryption at rest is on."""
        self.start_offset = 0
        self.control_offsets: list[int] = []
        """Base offsets of the control batches that `open` has read."""
        self.bytes_past_snapshot = 0
        """Bytes of the batches that `open` has read and that the newest snapshot does not hold."""

    def open(self, first_offset: int, first_epoch: int) -> None:
        """Scan the segments. An empty log begins at `first_offset`, the end of the newest snapshot (0 without a snapshot)."""
        storage = self._storage
        storage.make_dirs(self.log_dir)
        metadata_path = f"{self.log_dir}/partition.metadata"
        if not storage.exists(metadata_path):
            storage.write_atomic(metadata_path, _PARTITION_METADATA.encode())
        bases = _segment_bases(storage, self.log_dir)
        entries: list[tuple[int, int]] = []
        for base in bases:
            headers = self._open_segment(base, entries, is_last=base == bases[-1])
            self.bytes_past_snapshot += sum(h.size for h in headers if h.base_offset >= first_offset)
        last_epoch = entries[-1][0] if entries else 0
        if self._segments and (self.end_offset < first_offset or last_epoch < first_epoch):
            # The snapshot came from the leader and is ahead of the log: the log is covered by it or was never
            # committed, and is removed.
            self._remove_all()
            entries = []
        if not self._segments:
            self._new_segment(first_offset)
            if first_offset > 0:
                entries = [(first_epoch, first_offset)]
        self.start_offset = self._segments[0].base_offset
        self.epochs.rebuild(entries)

    def _open_segment(self, base: int, entries: list[tuple[int, int]], *, is_last: bool) -> list[BatchHeader]:
        segment = MetadataSegment(self._storage, self.log_dir, base)
        headers, excess = segment.scan()
        if excess and not is_last:
            raise MetadataLogError(
                f"{segment.file.path} is damaged at byte {segment.size} and is not the last segment of the log"
            )
        if excess:
            log.warning("metadata_log.tail_cut", path=segment.file.path, bytes=excess, end_offset=segment.next_offset)
            segment.cut_tail()
        if self._segments and self._segments[-1].next_offset != base:
            raise MetadataLogError(
                f"{segment.file.path} should begin at {self._segments[-1].next_offset}: a segment is missing"
            )
        for header in headers:
            if not entries or header.leader_epoch > entries[-1][0]:
                entries.append((header.leader_epoch, header.base_offset))
            if header.is_control:
                self.control_offsets.append(header.base_offset)
        if self._config.is_plain is not None and self._config.is_plain(segment.file.path):
            self._plain.add(base)
        self._segments.append(segment)
        return headers

    @property
    def segments(self) -> Sequence[MetadataSegment]:
        """In the order of their base offsets; the last is the active segment. Empty when the log is closed."""
        return self._segments

    @property
    def end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def append(self, batch: bytes | bytearray) -> int:
        """Append a batch whose base offset is the log's end; returns its last offset."""
        header = parse_header(batch, 0)
        if header.base_offset != self.end_offset:
            raise MetadataLogError(f"a batch at {header.base_offset} cannot follow the end {self.end_offset}")
        active = self._segments[-1]
        if active.size and self._is_full(active, len(batch)):
            active = self._roll()
        active.append(batch)
        self.epochs.assign(header.leader_epoch, header.base_offset)
        return header.last_offset

    def sync(self) -> None:
        """Make every append before this call durable; safe on a second thread. A closed log has nothing to sync."""
        segments = self._segments
        if segments:
            segments[-1].file.sync()

    def batches(self, start_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        for segment in self._segments:
            if segment.next_offset > start_offset:
                yield from segment.batches(start_offset)

    def truncate(self, end_offset: int) -> None:
        """Drop all batches from `end_offset` on, which a new leader does not have."""
        while len(self._segments) > 1 and self._segments[-1].base_offset >= end_offset:
            self._segments.pop().remove()
        self._segments[-1].truncate(end_offset)
        self.epochs.truncate_from_end(end_offset)

    def start_over(self, start_offset: int, epoch: int) -> None:
        """Drop all batches and begin at `start_offset`: a snapshot on disk covers the offsets below."""
        self._remove_all()
        self._new_segment(start_offset)
        self.start_offset = start_offset
        self.epochs.rebuild([(epoch, start_offset)])

    def delete_before(self, offset: int) -> int:
        """Remove whole segments below `offset` (a snapshot covers them); returns how many."""
        removed = 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self._segments.pop(0).remove()
            removed += 1
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        if removed:
            self.epochs.truncate_from_start(self.start_offset)
        return removed

    def close(self) -> None:
        for segment in self._segments[:-1]:
            segment.file.close()
        if self._segments:
            self._close_active(self._segments[-1])
        self._segments = []

    @staticmethod
    def _close_active(segment: MetadataSegment) -> None:
        try:
            segment.finish()
        except OSError as error:
            # Acknowledged batches are synced; the next start writes the indexes again.
            log.warning("metadata_log.unfinished", path=segment.file.path, error=str(error))
        segment.file.close()

    def _is_full(self, active: MetadataSegment, incoming: int) -> bool:
        if active.base_offset in self._plain or active.size + incoming > self._config.segment_bytes:
            return True
        return self._clock.time_ms() - active.first_timestamp > self._config.segment_ms

    def _roll(self) -> MetadataSegment:
        active = self._segments[-1]
        active.finish()
        segment = self._new_segment(active.next_offset)
        log.info("metadata_log.rolled", base_offset=segment.base_offset, size=active.size)
        return segment

    def _new_segment(self, base_offset: int) -> MetadataSegment:
        segment = MetadataSegment(self._storage, self.log_dir, base_offset)
        self._storage.sync_dir(self.log_dir)
        self._segments.append(segment)
        return segment

    def _remove_all(self) -> None:
        for segment in self._segments:
            segment.remove()
        self._segments = []


def _segment_bases(storage: Storage, log_dir: str) -> list[int]:
    bases = []
    for name in storage.list_dir(log_dir):
        stem, _, suffix = name.rpartition(".")
        if suffix == "log" and stem.isdigit():
            bases.append(int(stem))
        elif suffix == "deleted":
            storage.remove(f"{log_dir}/{name}")
    for base in bases[:-1]:
        if storage.size(segment_path(log_dir, base)) == 0:
            raise MetadataLogError(f"{segment_path(log_dir, base)} is empty but not the last segment of the log")
    return bases
