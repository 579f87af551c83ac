"""Runs a replica: syncs appended batches, hands committed batches to the listener, sends requests, sets the timer.

The driver does no I/O of its own: the caller passes blocking work, network and timers, so the simulator runs the same
code. The listener gets its calls in a fixed order. Snapshots and committed batches come by rising offset. `on_leader`
comes after every batch of earlier epochs. `on_resigned` comes before any batch that the next leader committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.env.logging import get_logger
from ottla.env.seams import Timer, Timers
from ottla.protocol.primitives import Message
from ottla.raft.node import RaftNode
from ottla.raft.outbound import Outbound, Reply
from ottla.raft.snapshots import Snapshot, SnapshotId
from ottla.raft.views import CommittedBatch

log = get_logger(__name__)

Done = Callable[[OSError | None], None]
Blocking = Callable[[Callable[[], None], Done], None]
"""Run the work, then call `Done` on the owner's thread with the OSError that the work raised, or None."""

Send = Callable[[Outbound], None]
"""Send a request; the caller passes the response to `RaftDriver.respond`."""


def run_inline(work: Callable[[], None], on_done: Done) -> None:
    """Blocking work on the caller's thread: at start, and in tests."""
    try:
        work()
    except OSError as error:
        on_done(error)
    else:
        on_done(None)


class RaftListener(Protocol):
    def on_snapshot(self, snapshot: Snapshot, snapshot_id: SnapshotId) -> None: ...

    def on_committed(self, batch: CommittedBatch) -> None: ...

    def on_caught_up(self) -> None:
        """The listener has every committed batch: the time for a snapshot."""
        ...

    def on_leader(self) -> None:
        """This node leads, and the listener has every batch that was committed before the epoch."""
        ...

    def on_resigned(self) -> None:
        """This node no longer leads: the next leader may truncate batches that are not committed."""
        ...


class RaftDriver:
    def __init__(
        self,
        raft: RaftNode,
        listener: RaftListener,
        *,
        blocking: Blocking = run_inline,
        send: Send | None = None,
        timers: Timers | None = None,
        on_failure: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        self.raft = raft
        self._listener = listener
        self._blocking = blocking
        self._send = send
        self._timers = timers
        self._on_failure = on_failure
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._flushing = False
        self._pumping = False
        self._led_epoch: int | None = None
        self.next_offset = 0
        """The first offset that the listener has not received."""
        self.closed = False
        self.failure: OSError | None = None

    def start(self) -> None:
        """Load the files; hand over the snapshot and the committed batches. Blocks."""
        snapshot = self.raft.start()
        latest = self.raft.snapshots.latest
        blocking, self._blocking = self._blocking, run_inline
        if snapshot is not None and latest is not None:
            self._listener.on_snapshot(snapshot, latest)
            self.next_offset = latest.end_offset
        self.pump()
        self._blocking = blocking

    # ------------------------------------------------------------------------------------------------- what comes in

    def receive(self, request: Message, version: int, reply: Reply) -> None:
        if (
            not self.closed
            and self.failure is None
            and self._run_or_fail(lambda: self.raft.receive(request, version, reply))
        ):
            self.pump()

    def respond(self, outbound: Outbound, response: Message | None, *, connection_refused: bool = False) -> None:
        if (
            not self.closed
            and self.failure is None
            and self._run_or_fail(lambda: self.raft.respond(outbound, response, connection_refused=connection_refused))
        ):
            self.pump()

    def resign(self) -> None:
        if self._run_or_fail(self.raft.resign):
            self.pump()

    # ------------------------------------------------------------------------------------------------------------ work

    def pump(self) -> None:
        """Do all work that is possible now. A call from within `pump` does nothing."""
        if self._pumping or self.closed or self.failure is not None:
            return
        self._pumping = True
        try:
            self.raft.tick()
            self._hand_over()
            self._flush()
            if self.failure is None:
                self._send_ready()
                self._arm()
        except OSError as error:
            self.fail(error)
        finally:
            self._pumping = False

    def _hand_over(self) -> None:
        raft = self.raft
        if self._led_epoch is not None and not (raft.is_leader and raft.epoch == self._led_epoch):
            self._led_epoch = None
            self._listener.on_resigned()
        loaded = raft.take_loaded()
        if loaded is not None:
            self._listener.on_snapshot(*loaded)
            self.next_offset = loaded[1].end_offset
        before = self.next_offset
        for batch in raft.committed(self.next_offset):
            self._listener.on_committed(batch)
            self.next_offset = batch.last_offset + 1
        if self.next_offset > before:
            self._listener.on_caught_up()
        start = raft.epoch_start_offset
        if start is not None and self._led_epoch is None and self.next_offset > start:
            self._led_epoch = raft.epoch
            self._listener.on_leader()

    def _flush(self) -> None:
        """One sync at a time: batches that are appended during a sync share the next sync (group commit)."""
        while not self._flushing and self.failure is None and (end_offset := self.raft.unflushed()) is not None:
            self._flushing = True
            self._blocking(self.raft.sync, lambda error, end=end_offset: self._on_flushed(end, error))  # type: ignore[misc]

    def _on_flushed(self, end_offset: int, error: OSError | None) -> None:
        self._flushing = False
        if self.closed:
            return
        if error is not None:
            self.fail(error)
            return
        self.raft.flushed(end_offset)
        if self._pumping:
            self.raft.tick()
            self._hand_over()
        else:
            self.pump()

    def _send_ready(self) -> None:
        requests = self.raft.ready()
        if self._send is not None:
            for outbound in requests:
                self._send(outbound)

    def _arm(self) -> None:
        if self._timers is None:
            return
        deadline = self.raft.next_deadline_ms()
        now = self.raft.replica.now_ms()
        at = float("inf") if deadline is None else max(deadline, now)
        if self._timer is not None:
            if self._timer_at <= at:
                return  # the timer fires early, and `pump` sets the next timer
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer_at = at
            self._timer = self._timers.call_later(at - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        self.pump()

    # ------------------------------------------------------------------------------------------------- failure and end

    def _run_or_fail(self, work: Callable[[], None]) -> bool:
        """Returns False after an OSError. A failed metadata disk is final: records in memory may be missing on disk."""
        try:
            work()
        except OSError as error:
            self.fail(error)
            return False
        return True

    def fail(self, error: OSError) -> None:
        if self.failure is None:
            log.error("metadata_log.failed", error=str(error))
            self.failure = error
            self._on_failure(error)

    def close(self) -> None:
        """Make all appends durable and close the log; later calls do nothing."""
        end_offset = self.raft.unflushed()
        if end_offset is not None and self.failure is None and not self.closed:
            # A flush may be running on its thread: this sync covers the same batches, and the late report is ignored.
            self._blocking = run_inline
            run_inline(self.raft.sync, lambda error: self._on_flushed(end_offset, error))
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.raft.close()
