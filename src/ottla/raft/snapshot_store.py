"""The snapshots of a replica: their ids, when the next snapshot is due, which snapshots are deleted.

A snapshot is due after `max_record_bytes` of records or after `max_interval_ms`. The oldest snapshot is deleted past
`retention_ms`, or while log and snapshots exceed `retention_bytes`. The last snapshot always stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.env.logging import get_logger
from ottla.env.seams import Clock, Storage
from ottla.raft.snapshots import Snapshot, SnapshotId, decode_snapshot, encode_snapshot, list_snapshots
from ottla.raft.voters import VoterSet

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRetention:
    max_record_bytes: int = 20 * 1024 * 1024
    """metadata.log.max.record.bytes.between.snapshots"""
    max_interval_ms: int = 3600 * 1000
    """metadata.log.max.snapshot.interval.ms; 0 turns it off"""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes; -1 keeps everything"""
    retention_ms: int = 7 * 24 * 3600 * 1000
    """metadata.max.retention.ms; -1 keeps everything"""


class SnapshotStore:
    def __init__(self, storage: Storage, log_dir: str, clock: Clock, retention: SnapshotRetention) -> None:
        self._storage = storage
        self._dir = log_dir
        self._clock = clock
        self._retention = retention
        self.ids: list[SnapshotId] = []
        self._new_bytes = 0
        self._first_new_ms = 0

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    def open(self) -> Snapshot | None:
        self.ids = list_snapshots(self._storage, self._dir)
        if not self.ids:
            return None
        name = self.ids[-1].file_name()
        path = f"{self._dir}/{name}"
        return decode_snapshot(self._storage.read_bytes(path), path)

    def add_new_bytes(self, record_bytes: int, now_ms: int) -> None:
        """Count bytes of records that no snapshot holds."""
        if self._new_bytes == 0:
            self._first_new_ms = now_ms
        self._new_bytes += record_bytes

    def due(self) -> bool:
        if self._new_bytes == 0:
            return False
        if self._new_bytes >= self._retention.max_record_bytes:
            return True
        interval = self._retention.max_interval_ms
        return interval > 0 and self._clock.time_ms() - self._first_new_ms >= interval

    def write(
        self,
        snapshot_id: SnapshotId,
        frames: Iterable[bytes],
        last_contained_ms: int,
        *,
        kraft_version: int,
        voters: VoterSet | None,
    ) -> None:
        data = encode_snapshot(
            frames,
            epoch=snapshot_id.epoch,
            last_contained_timestamp=last_contained_ms,
            now_ms=self._clock.time_ms(),
            kraft_version=kraft_version,
            voters=voters,
        )
        self._storage.write_atomic(self._path(snapshot_id), data)

    def adopt(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """Store a snapshot of the leader as the newest snapshot; the file is on disk on return."""
        self._storage.write_atomic(self._path(snapshot_id), data)
        self._new_bytes = 0
        self.written(snapshot_id)

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """The size of the file, and up to `max_bytes` from `position`."""
        path = self._path(snapshot_id)
        file = self._storage.open(path)
        try:
            return file.size(), file.pread(max_bytes, position)
        finally:
            file.close()

    def reset_new_bytes(self) -> None:
        """A snapshot of the whole log is being written: count the bytes again from 0."""
        self._new_bytes = 0

    def written(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id not in self.ids:
            self.ids = sorted([*self.ids, snapshot_id])
        log.info("snapshot.written", snapshot=snapshot_id.file_name())

    def clean(self, log_size: int) -> SnapshotId | None:
        """Delete snapshots past their retention. Returns the oldest remaining snapshot, or None without a deletion."""
        cleaned = False
        while len(self.ids) > 1 and self._may_go(log_size):
            snapshot_id = self.ids.pop(0)
            self._storage.remove(self._path(snapshot_id))
            log.info("snapshot.deleted", snapshot=snapshot_id.file_name())
            cleaned = True
        return self.ids[0] if cleaned else None

    def _may_go(self, log_size: int) -> bool:
        retention = self._retention
        if retention.retention_ms >= 0:
            age = self._clock.time_ms() - self._storage.modified_ms(self._path(self.ids[0]))
            if age > retention.retention_ms:
                return True
        sizes = sum(self._storage.size(self._path(snapshot_id)) for snapshot_id in self.ids)
        return 0 <= retention.retention_bytes < log_size + sizes

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._dir}/{snapshot_id.file_name()}"
