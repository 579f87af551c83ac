"""The controller at work: decide, append, replay into the controller's image at once, answer when it is committed.

The broker side (the publisher) sees records only at their commit, in order. Blocking work (fsync, snapshot files) goes
through `Blocking`, one flush at a time: what arrives while one runs shares the next (group commit). A failing metadata
disk is final: every waiting request is refused and `on_failure` is called, because what is in memory may not be on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ottla.controller.bootstrap import activation_records
from ottla.controller.brokers import fence_stale_brokers
from ottla.controller.controller import Controller
from ottla.controller.state import ControllerState, RequestContext
from ottla.env.logging import get_logger
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataError
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import decode_frame, encode_frame
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot import image_records
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import DecodeError, Message
from ottla.raft.errors import BatchTooLargeError, MetadataLogError
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import Snapshot

_MAY_BE_SPLIT = frozenset(
    {"AlterPartitionRequest", "BrokerHeartbeatRequest", "ElectLeadersRequest", "UnregisterBrokerRequest"}
)
"""Each of their records stands for itself, so a very long list may go into several batches."""

log = get_logger(__name__)

Done = Callable[[OSError | None], None]
Blocking = Callable[[Callable[[], None], Done], None]
"""Run the first, then call the second on the owner's thread with the OSError that it raised, or None."""


class Answer(Protocol):
    """A future, such as `loop.create_future()` makes."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...

    def done(self) -> bool: ...


class _Pending(NamedTuple):
    last_offset: int
    records: list[Message]
    answer: Answer | None
    response: Message | None


def run_inline(work: Callable[[], None], done: Done) -> None:
    """Blocking work on the caller's thread: at start, and in tests."""
    try:
        work()
    except OSError as error:
        done(error)
    else:
        done(None)


class ControllerRuntime:
    def __init__(
        self,
        raft: RaftNode,
        state: ControllerState,
        *,
        new_answer: Callable[[], Answer],
        blocking: Blocking = run_inline,
        on_failure: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        self._raft = raft
        self.state = state
        self.controller = Controller(state)
        self.publisher = MetadataPublisher()
        self._new_answer = new_answer
        self._blocking = blocking
        self._on_failure = on_failure
        self._pending: deque[_Pending] = deque()
        self._flushing = False
        self._snapshotting = False
        self._last_commit_ms = 0
        self._closed = False
        self.failure: OSError | None = None

    # ---------------------------------------------------------------------------------------------------------- start

    def start(self, bootstrap: list[Message]) -> None:
        """Load snapshot and log, become active, and write the first records of a new cluster. Blocks on fsync."""
        snapshot = self._raft.start()
        image = self.state.image
        try:
            self._load(snapshot)
        except (DecodeError, MetadataError) as error:
            raise MetadataLogError(f"the metadata log holds what this release cannot apply: {error}") from error
        self.publisher.load(image.copy(), self._raft.high_watermark - 1, self._raft.epoch)
        records = activation_records(self.state, bootstrap)
        if records:
            blocking, self._blocking = self._blocking, run_inline
            self._append(records, None, None)
            self._flush()
            self._blocking = blocking
        if self.failure is not None:
            raise self.failure

    def _load(self, snapshot: Snapshot | None) -> None:
        image, delta = self.state.image, MetadataDelta()
        next_offset = 0
        if snapshot is not None and self._raft.snapshots.latest is not None:
            replay_all(image, delta, map(decode_frame, snapshot.frames))
            next_offset = self._raft.snapshots.latest.end_offset
            self._last_commit_ms = snapshot.last_contained_timestamp
        for batch in self._raft.committed(next_offset):
            replay_all(image, delta, map(decode_frame, batch.frames))
            self._last_commit_ms = batch.timestamp_ms

    # --------------------------------------------------------------------------------------------------------- requests

    def submit(self, request: Message, context: RequestContext) -> Answer:
        """Decide now; the answer comes when what was decided, and all before it, is committed."""
        answer = self._new_answer()
        if self.failure is not None:
            answer.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            return answer
        decision = self.controller.decide(request, context)
        if decision.records:
            try:
                self._append(
                    decision.records, answer, decision.response, atomic=type(request).__name__ not in _MAY_BE_SPLIT
                )
            except BatchTooLargeError as error:
                from ottla.controller.error_responses import error_response

                answer.set_result(error_response(request, KafkaError(ErrorCode.POLICY_VIOLATION, str(error))))
            self._flush()
        elif self._pending:
            self._pending.append(_Pending(self._pending[-1].last_offset, [], answer, decision.response))
        else:
            answer.set_result(decision.response)
        return answer

    def _append(
        self, records: list[Message], answer: Answer | None, response: Message | None, *, atomic: bool = True
    ) -> None:
        version = self.state.image.metadata_version
        try:
            last_offset = self._raft.append([encode_frame(record, version) for record in records], atomic=atomic)
        except OSError as error:
            self._pending.append(_Pending(self._raft.end_offset, [], answer, response))
            self._fail(error)
            return
        replay_all(self.state.image, MetadataDelta(), records)
        self._pending.append(_Pending(last_offset, records, answer, response))

    # ------------------------------------------------------------------------------------------------- flush and commit

    def _flush(self) -> None:
        end_offset = self._raft.unflushed()
        if self._flushing or end_offset is None or self.failure is not None:
            return
        self._flushing = True
        self._blocking(self._raft.sync, lambda error: self._on_flushed(end_offset, error))

    def _on_flushed(self, end_offset: int, error: OSError | None) -> None:
        if self._closed:
            return
        self._flushing = False
        if error is not None:
            self._fail(error)
            return
        if self._raft.flushed(end_offset):
            self._last_commit_ms = self.state.clock.time_ms()
        while self._pending and self._pending[0].last_offset < self._raft.high_watermark:
            self._commit(self._pending.popleft())
        self._flush()
        self._maybe_snapshot()

    def _commit(self, pending: _Pending) -> None:
        if pending.records:
            self.publisher.committed(pending.records, pending.last_offset, self._raft.epoch)
        if pending.answer is not None and not pending.answer.done():
            pending.answer.set_result(pending.response)

    def _fail(self, error: OSError) -> None:
        log.error("metadata_log.failed", error=str(error))
        self.failure = error
        while self._pending:
            answer = self._pending.popleft().answer
            if answer is not None and not answer.done():
                answer.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        self._on_failure(error)

    # ------------------------------------------------------------------------------------------- snapshots, housekeeping

    def tick(self) -> None:
        """Once in a while (a second or so): fence brokers that are gone, snapshot what is due."""
        if self.failure is not None:
            return
        records = fence_stale_brokers(self.state)
        if self.state.image.delegation_tokens:
            from ottla.controller.delegation_tokens import expired_tokens

            records += expired_tokens(self.state)
        if records:
            self._append(records, None, None, atomic=False)
            self._flush()
        self._maybe_snapshot()

    def _maybe_snapshot(self) -> None:
        if self._raft.snapshots.due():
            self.snapshot()

    def snapshot(self) -> None:
        """Write a snapshot of everything committed; the image is copied now, encoded and written in `Blocking`."""
        if self._snapshotting or self.publisher.image.transaction is not None or self.failure is not None:
            return
        self._snapshotting = True
        self._raft.snapshots.begun()
        image = self.publisher.image.copy()
        snapshot_id = self._raft.snapshot_id(self.publisher.offset)
        timestamp = self._last_commit_ms

        def work() -> None:
            version = image.metadata_version
            self._raft.write_snapshot(
                snapshot_id, (encode_frame(record, version) for record in image_records(image)), timestamp
            )

        def done(error: OSError | None) -> None:
            self._snapshotting = False
            if error is not None:
                log.error("snapshot.failed", snapshot=snapshot_id.file_name(), error=str(error))
            else:
                self._raft.snapshot_written(snapshot_id)

        self._blocking(work, done)

    def close(self) -> None:
        """Make everything durable, answer who waits, close the log; requests that come later are refused."""
        end_offset = self._raft.unflushed()
        if end_offset is not None and self.failure is None:
            # A flush may be under way on its thread; this one covers it, and its report then comes too late to matter.
            self._blocking = run_inline
            run_inline(self._raft.sync, lambda error: self._on_flushed(end_offset, error))
        self._closed = True
        if self.failure is None:
            self.failure = OSError("the controller is closed")
        self._raft.close()
