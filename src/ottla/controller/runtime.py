"""The controller at work: decide, append, replay into the controller's image at once, answer when it is committed.

The broker side (the publisher) sees records only at their commit, in order. Only the active controller decides: it is
the quorum's leader and has replayed everything that was committed before it was elected.

When the controller loses leadership, it drops its image with all uncommitted records, and refuses waiting requests with
NOT_CONTROLLER. The next leader commits or undoes the appended records. Records that it commits come back as committed
batches. A failing metadata disk is final: every waiting request is refused and `on_failure` is called.

Decisions, with the replay of their records, are events (`ottla.controller.events`): a large event takes many turns of the
loop. The append is one step, and a decision of an earlier leadership is dropped before its append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from ottla.controller.bootstrap import activation_records
from ottla.controller.brokers import end_session, fence_broker, fence_stale_brokers
from ottla.controller.committed import CommittedMetadata
from ottla.controller.controller import Controller
from ottla.controller.events import ControllerEvents, InSlices
from ottla.controller.periodic import Periodic
from ottla.controller.state import BrokerSession, ControllerRequestContext, ControllerState
from ottla.env.logging import get_logger
from ottla.env.seams import Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import encode_frame
from ottla.metadata.replay import replay_all
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId
from ottla.model.pace import at_pace, paced
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_registration_request import BrokerRegistrationRequest
from ottla.protocol.primitives import Message
from ottla.raft.driver import Blocking, Done, RaftDriver, Send, run_inline
from ottla.raft.errors import BatchTooLargeError
from ottla.raft.node import RaftNode
from ottla.raft.snapshots import Snapshot, SnapshotId
from ottla.raft.views import CommittedBatch

__all__ = ["Blocking", "ControllerRuntime", "DecisionFuture", "Done", "run_inline"]

_MAY_BE_SPLIT = frozenset(
    {"AlterPartitionRequest", "BrokerHeartbeatRequest", "ElectLeadersRequest", "UnregisterBrokerRequest"}
)
"""The records of these requests are independent, so a very long list may go into several batches."""
_OF_THE_QUORUM = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""The leader of the quorum answers these requests itself."""
_ENCODE_UNITS = 10
_REPLAY_UNITS = 4
"""Work for one record, in units of about a microsecond."""

log = get_logger(__name__)


class DecisionFuture(Protocol):
    """A future, such as `loop.create_future()` makes."""

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...

    def done(self) -> bool: ...


class _Pending(NamedTuple):
    last_offset: int
    records: list[Message]
    answer: DecisionFuture | None
    response: Message | None


class ControllerRuntime:
    def __init__(
        self,
        raft: RaftNode,
        state: ControllerState,
        *,
        new_answer: Callable[[], DecisionFuture],
        blocking: Blocking = run_inline,
        on_failure: Callable[[OSError], None] = lambda _error: None,
        send: Send | None = None,
        timers: Timers | None = None,
        in_slices: InSlices | None = None,
    ) -> None:
        self._raft = raft
        self.state = state
        self.controller = Controller(state)
        self._committed = CommittedMetadata(raft, blocking)
        self._new_answer = new_answer
        self._on_failure = on_failure
        self._pending: deque[_Pending] = deque()
        self._periodic = Periodic(state)
        self._bootstrap: list[Message] = []
        self._events = ControllerEvents(in_slices)
        self._term = 0
        """Rises when leadership begins or ends: a decision of an earlier term is not appended."""
        self._ticking = False
        self.driver = RaftDriver(raft, self, blocking=blocking, send=send, timers=timers, on_failure=self._fail)
        self.active = False

    @property
    def publisher(self) -> MetadataPublisher:
        return self._committed.publisher

    @property
    def failure(self) -> OSError | None:
        return self.driver.failure

    def start(self, bootstrap: list[Message]) -> None:
        """Load snapshot and log; alone, become active and write the first records of a new cluster. Blocks on fsync."""
        self._bootstrap = bootstrap
        self.driver.start()
        if self.failure is not None:
            raise self.failure

    # --------------------------------------------------------------------------------------- callbacks from the quorum

    def on_snapshot(self, snapshot: Snapshot, snapshot_id: SnapshotId) -> None:
        self._committed.load(snapshot, snapshot_id)

    def on_committed(self, batch: CommittedBatch) -> None:
        """Called in the order of the log. Own records are in memory; others are read from the log."""
        records = None
        if self._pending and self._pending[0].last_offset == batch.last_offset and self.active:
            records = self._pending[0].records
            records = records if len(records) == batch.frame_count else None
        self._committed.apply(batch, records)
        while self._pending and self._pending[0].last_offset <= batch.last_offset:
            pending = self._pending.popleft()
            _respond(pending.answer, pending.response)

    def on_caught_up(self) -> None:
        self._committed.snapshot_if_due()

    def on_leader(self) -> None:
        """Everything before this epoch is in the published image: the decisions start from a copy of it."""
        self.state.image = self.publisher.image.copy()
        self.state.sessions.clear()
        heard = self._raft.take_last_leader_contact()
        if heard is not None and heard[0] in self.state.image.brokers:
            # The previous leader may hang together with its broker: the broker's session starts at the last contact.
            self.state.sessions[heard[0]] = BrokerSession(heard[1])
        self._periodic.restart()
        self._term += 1
        self.active = True
        log.info("controller.activated", epoch=self._raft.epoch, offset=self.publisher.offset)
        records = activation_records(self.state, self._bootstrap)
        if records and self._append(records, self._encoded(records), None, None):
            replay_all(self.state.image, MetadataDelta(), records)

    def on_resigned(self) -> None:
        """Refuse waiting requests: their records may never be committed."""
        self.active = False
        self._term += 1
        log.info("controller.resigned", waiting=len(self._pending))
        self._refuse_pending(ErrorCode.NOT_CONTROLLER)

    def _refuse_pending(self, code: ErrorCode) -> None:
        while self._pending:
            _refuse(self._pending.popleft().answer, code)

    # --------------------------------------------------------------------------------------------------------- requests

    def submit(self, request: Message, context: ControllerRequestContext) -> DecisionFuture:
        """Decide when the events before have ended; answer when the decision's records, and all records before them,
        are committed. A heartbeat that changes nothing is answered at once."""
        answer = self._new_answer()
        if request.API_KEY in _OF_THE_QUORUM:
            self.driver.receive(request, context.version, answer.set_result)
            return answer
        urgent = isinstance(request, BrokerHeartbeatRequest | BrokerRegistrationRequest)
        event = partial(self._request, request, context, answer)
        self._events.run(event, partial(_fail_answer, answer), urgent=urgent)
        return answer

    def _request(self, request: Message, context: ControllerRequestContext, answer: DecisionFuture) -> None:
        if not self._accepts(answer):
            return
        term = self._term
        decision = self.controller.decide(request, context)
        frames = self._encoded(decision.records)
        if term != self._term or self.driver.closed:
            _refuse(answer, ErrorCode.NOT_CONTROLLER)
            return
        if decision.records:
            atomic = type(request).__name__ not in _MAY_BE_SPLIT
            try:
                appended = self._append(decision.records, frames, answer, decision.response, atomic=atomic)
            except BatchTooLargeError as error:
                from ottla.controller.error_responses import error_response

                _respond(answer, error_response(request, KafkaError(ErrorCode.POLICY_VIOLATION, str(error))))
                appended = False
            if appended:
                self._replay(decision.records)
            self._pump()
        elif self._pending and not self._rests_on_committed(request):
            self._pending.append(_Pending(self._pending[-1].last_offset, [], answer, decision.response))
        else:
            _respond(answer, decision.response)
        if self._raft.unflushed() is not None:
            self._pump()  # the decision was the quorum's own record

    def _accepts(self, answer: DecisionFuture) -> bool:
        """Whether this node decides; otherwise the answer has its error. A peer that left while its request waited for
        other events has cancelled the answer: the request is dropped."""
        if answer.done():
            return False
        if self.failure is not None or self.driver.closed:
            _refuse(answer, ErrorCode.KAFKA_STORAGE_ERROR)
        elif not self.active:
            _refuse(answer, ErrorCode.NOT_CONTROLLER)
        else:
            return True
        return False

    def _encoded(self, records: list[Message]) -> list[bytes]:
        version = self.state.image.metadata_version
        return [encode_frame(record, version) for record in paced(records, _ENCODE_UNITS)]

    def _replay(self, records: list[Message]) -> None:
        """Only events read the controller's own image: no other event sees half of the records."""
        replay_all(self.state.image, MetadataDelta(), paced(records, _REPLAY_UNITS))

    def _pump(self) -> None:
        """One step, with everything that the commit of records causes: nothing below may pause within an event."""
        with at_pace(None):
            self.driver.pump()

    def _rests_on_committed(self, request: Message) -> bool:
        """Whether the answer to a request without records is true of the committed metadata. That holds for a broker's
        heartbeat while no record about that broker waits. Such an answer does not wait for records of other brokers."""
        if not isinstance(request, BrokerHeartbeatRequest):
            return False
        return self.publisher.image.brokers.get(request.broker_id) == self.state.image.brokers.get(request.broker_id)

    def _append(
        self,
        records: list[Message],
        frames: list[bytes],
        answer: DecisionFuture | None,
        response: Message | None,
        *,
        atomic: bool = True,
    ) -> bool:
        """Whether the records are in the log; the caller replays them next."""
        try:
            with at_pace(None):
                last_offset = self._raft.append(frames, atomic=atomic)
        except OSError as error:
            self.driver.fail(error)
            _refuse(answer, ErrorCode.KAFKA_STORAGE_ERROR)
            return False
        self._pending.append(_Pending(last_offset, records, answer, response))
        return True

    def _fail(self, error: OSError) -> None:
        self.active = False
        self._term += 1
        self._refuse_pending(ErrorCode.KAFKA_STORAGE_ERROR)
        self._on_failure(error)

    # ------------------------------------------------------------------------------------------- snapshots, housekeeping

    def tick(self) -> None:
        """Called about once a second: fence dead brokers, write a snapshot if it is due."""
        if self.failure is not None:
            return
        if self.active and not self._ticking:
            self._ticking = True
            self._events.run(self._duties, _raise, urgent=True)
        self._committed.snapshot_if_due()

    def _duties(self) -> None:
        self._ticking = False
        self._own(lambda: fence_stale_brokers(self.state) or self._periodic.due())

    def fence(self, broker_id: NodeId, broker_epoch: int) -> None:
        """A broker of that epoch is certainly dead: neither fencing nor its next incarnation waits for its session."""

        def fence() -> list[Message]:
            broker = self.state.image.brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch or broker.fenced:
                return []
            end_session(self.state, broker_id)
            return fence_broker(self.state, broker)

        self._events.run(partial(self._own, fence), _raise, urgent=True)

    def _own(self, decide: Callable[[], list[Message]]) -> None:
        """Records that the active controller decides on by itself."""
        term = self._term
        if not self.active:
            return
        records = decide()
        frames = self._encoded(records)
        if not records or term != self._term or self.driver.closed:
            return
        if self._append(records, frames, None, None, atomic=False):
            self._replay(records)
        self._pump()

    def snapshot(self) -> None:
        if self.failure is None:
            self._committed.snapshot()

    def close(self) -> None:
        """Make everything durable, answer waiting requests, close the log; later requests are refused."""
        self.driver.close()
        self.active = False


def _respond(answer: DecisionFuture | None, response: Message | None) -> None:
    if answer is not None and not answer.done():
        answer.set_result(response)


def _refuse(answer: DecisionFuture | None, code: ErrorCode) -> None:
    if answer is not None:
        _fail_answer(answer, KafkaError(code))


def _fail_answer(answer: DecisionFuture, error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _raise(error: Exception) -> None:
    raise error
