"""The committed metadata of a node, controller or broker: replayed into the publisher, and snapshotted when it is due."""

from __future__ import annotations

from ottla.env.logging import get_logger
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataError, MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import decode_frame, encode_frame
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot import image_records
from ottla.protocol.primitives import DecodeError, Message
from ottla.raft.driver import Blocking
from ottla.raft.errors import MetadataLogError
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import Snapshot, SnapshotId
from ottla.raft.views import CommittedBatch

log = get_logger(__name__)


class CommittedMetadata:
    def __init__(self, raft: RaftNode, blocking: Blocking) -> None:
        self._raft = raft
        self._blocking = blocking
        self.publisher = MetadataPublisher()
        self._snapshotting = False
        self._last_commit_ms = 0

    def load(self, snapshot: Snapshot, snapshot_id: SnapshotId) -> None:
        """A snapshot replaces all records below its end."""
        image = MetadataImage()
        try:
            replay_all(image, MetadataDelta(), map(decode_frame, snapshot.frames))
        except (DecodeError, MetadataError) as error:
            raise MetadataLogError(f"snapshot {snapshot_id.file_name()} cannot be applied: {error}") from error
        self._last_commit_ms = snapshot.last_contained_timestamp
        self.publisher.load(image, snapshot_id.end_offset - 1, snapshot_id.epoch)

    def apply(self, batch: CommittedBatch, records: list[Message] | None = None) -> None:
        """Apply one committed batch; `records` are its decoded records, if they are in memory."""
        try:
            if records is None:
                records = [decode_frame(frame) for frame in batch.frames]
            self.publisher.committed(records, batch.last_offset, batch.epoch)
        except (DecodeError, MetadataError) as error:
            raise MetadataLogError(f"the metadata log holds what this release cannot apply: {error}") from error
        self._last_commit_ms = batch.timestamp_ms

    def snapshot_if_due(self) -> None:
        if self._raft.snapshots.due():
            self.snapshot()

    def snapshot(self) -> None:
        """Write a snapshot of everything committed; the image is copied now, encoded and written in `Blocking`."""
        publisher, latest = self.publisher, self._raft.snapshots.latest
        if self._snapshotting or publisher.image.transaction is not None or publisher.offset < 0:
            return
        if latest is not None and latest.end_offset > publisher.offset:
            return
        self._snapshotting = True
        self._raft.snapshots.reset_new_bytes()
        image = publisher.image.copy()
        snapshot_id = self._raft.snapshot_id(publisher.offset)
        quorum = self._raft.quorum_at(snapshot_id)
        timestamp = self._last_commit_ms

        def work() -> None:
            version = image.metadata_version
            frames = (encode_frame(record, version) for record in image_records(image))
            self._raft.write_snapshot(snapshot_id, frames, timestamp, quorum)

        def done(error: OSError | None) -> None:
            self._snapshotting = False
            if error is not None:
                log.error("snapshot.failed", snapshot=snapshot_id.file_name(), error=str(error))
            else:
                self._raft.snapshot_written(snapshot_id)

        self._blocking(work, done)
