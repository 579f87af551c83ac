"""A broker's view of the quorum: it follows the metadata log, publishes committed records and never decides."""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.committed import CommittedMetadata
from ottla.env.seams import Timers
from ottla.metadata.publisher import MetadataPublisher
from ottla.raft.driver import Blocking, RaftDriver, Send, run_inline
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import Snapshot, SnapshotId
from ottla.raft.views import CommittedBatch


class MetadataObserver:
    def __init__(
        self,
        raft: RaftNode,
        *,
        blocking: Blocking = run_inline,
        send: Send | None = None,
        timers: Timers | None = None,
        on_failure: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        self._committed = CommittedMetadata(raft, blocking)
        self.driver = RaftDriver(raft, self, blocking=blocking, send=send, timers=timers, on_failure=on_failure)

    @property
    def publisher(self) -> MetadataPublisher:
        return self._committed.publisher

    def start(self) -> None:
        self.driver.start()

    def on_snapshot(self, snapshot: Snapshot, snapshot_id: SnapshotId) -> None:
        self._committed.load(snapshot, snapshot_id)

    def on_committed(self, batch: CommittedBatch) -> None:
        self._committed.apply(batch)

    def on_caught_up(self) -> None:
        self._committed.snapshot_if_due()

    def on_leader(self) -> None:
        """An observer is never elected."""

    def on_resigned(self) -> None:
        """Nor does it resign."""

    def tick(self) -> None:
        """Called periodically: write a snapshot if it is due."""
        if self.driver.failure is None:
            self._committed.snapshot_if_due()

    def close(self) -> None:
        self.driver.close()
