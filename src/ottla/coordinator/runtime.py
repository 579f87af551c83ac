"""A shard: one partition of a coordinator's topic and the partition's machine, from load to unload.

Events (requests, timers) run one at a time and to their end: decide, append the records as one batch, replay them,
respond. Answers leave when all records that the event may have seen are committed. An append that fails changes nothing
durable and turns the event's answers into its error. A shard that loses leadership closes and drops its memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.coordinator.decisions import CoordinatorAnswer, Waiter
from ottla.coordinator.loader import Loader
from ottla.coordinator.timers import KeyedTimers
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, Timer, Timers
from ottla.log.producer_state import VerificationGuard
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from ottla.model.pace import at_pace
from ottla.protocol.records import SimpleRecord, build_batch, build_end_txn_marker
from ottla.protocol.records_header import HEADER_BYTES
from ottla.replication.partition import Partition

log = get_logger(__name__)

_RECORD_OVERHEAD = 40
"""The most that a record has besides its key and value: lengths, attributes, deltas of time and offset."""

_COMPLAINT_INTERVAL_MS = 1_000

AnyDecision: TypeAlias = Decision[Any, list[CoordinatorAnswer]]
"""The records are the machine's own; the shard only hands them to its codec and back."""


class Machine(Protocol):
    def replay(self, offset: int, producer_id: ProducerId, record: Any) -> None: ...

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None: ...

    def on_loaded(self) -> AnyDecision: ...

    def on_unloaded(self) -> AnyDecision: ...


MachineT = TypeVar("MachineT", bound=Machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec(Generic[MachineT]):
    """What differs between the shards of the coordinators: machine, codec, limits."""

    make_machine: Callable[[Shard[MachineT]], MachineT]
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], Any]
    load_buffer_size: int
    commit_timeout_ms: int
    compression: int = 0


class TransactionalProducer(NamedTuple):
    """Whose transaction an event's records are part of."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    verification: VerificationGuard | None = None


class EndOfTransaction(NamedTuple):
    """The contents of an end-of-transaction marker."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0


def append_marker(partition: Partition, end: EndOfTransaction, now_ms: int) -> int:
    """Append the marker that ends a transaction. Returns the offset after the marker."""
    marker = build_end_txn_marker(
        commit=end.committed,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=now_ms,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
    )
    result = partition.append_internal(marker, now_ms=now_ms, transaction_version=end.transaction_version)
    return result.last_offset + 1


class ShardState(Enum):
    LOADING = "Loading"
    ACTIVE = "Active"
    CLOSED = "Closed"


class LoadStep(Enum):
    MORE = "More"
    LATER = "Later"
    """A file could not be opened; the shard is still loading."""
    DONE = "Done"
    """The shard is active, or closed."""


class Shard(Generic[MachineT]):
    def __init__(self, partition: Partition, spec: ShardSpec[MachineT], clock: Clock, timers: Timers) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self._spec = spec
        self._clock = clock
        self._timers = timers
        self.deadlines: KeyedTimers[Callable[[], AnyDecision]] = KeyedTimers(timers, clock, self.submit)
        self.machine = spec.make_machine(self)
        self._end_offset = 0
        self._silent_until_ms = 0.0
        self._parked: dict[object, tuple[list[CoordinatorAnswer], Timer]] = {}
        self._loader = Loader(partition.log, self.machine, spec.decode, max_bytes=spec.load_buffer_size)

    # Load and unload

    @property
    def replayed(self) -> int:
        """Records that the load has replayed."""
        return self._loader.replayed

    def load_some(self) -> LoadStep:
        """Replay some records of the log. The shard is active after the last of them."""
        if self.state is not ShardState.LOADING:
            return LoadStep.DONE
        try:
            self._loader.log = self.partition.log
            done = self._loader.load_some()
        except KafkaError as error:
            return self._load_failed(error)
        except OSError as error:
            return self._load_failed(self.partition.log.log_dir.storage_error(error))
        if not done:
            return LoadStep.MORE
        self.state = ShardState.ACTIVE
        self._end_offset = self.partition.log.log_end_offset
        log.debug("shard.loaded", partition=str(self.partition.topic_partition), skipped=self._loader.skipped)
        decision = self.machine.on_loaded()
        # The deadlines of a shard that has loaded stay, also when the records of that event are refused.
        self.deadlines.begin()
        self._settle(decision)
        return LoadStep.DONE

    def _load_failed(self, error: KafkaError) -> LoadStep:
        """Retry after a refusal for want of file descriptors: this node leads, and no other node can load the shard."""
        log.error("shard.load_failed", partition=str(self.partition.topic_partition), reason=error.message)
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not self.partition.log.log_dir.offline:
            return LoadStep.LATER
        self.close()
        return LoadStep.DONE

    def close(self) -> None:
        """This node does not lead any more: waiting clients must look for the new coordinator."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self.deadlines.cancel_all()
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        waiting = [answer for answers, _ in self._parked.values() for answer in answers]
        for _, timer in self._parked.values():
            timer.cancel()
        self._parked.clear()
        waiting += self.machine.on_unloaded().response
        _deliver([CoordinatorAnswer(answer.waiter, error) for answer in waiting])

    # Events

    def run(self, operation: Callable[[MachineT], AnyDecision], producer: TransactionalProducer | None = None) -> None:
        """Run one event.

        Raises KafkaError when the shard is not active or the operation refuses; nothing has changed then.
        """
        self._require_active()
        with at_pace(None):  # no other event comes between a decision and its change
            self.deadlines.begin()
            try:
                decision = operation(self.machine)
            except Exception:  # refused, or a bug: either way its deadlines are as before
                self.deadlines.restore()
                raise
            self._settle(decision, producer)

    def end_transaction(self, end: EndOfTransaction, waiter: Waiter) -> None:
        """Append a transaction's marker and replay it in the machine; the waiter gets None. KafkaError: the marker was
        not written.
        """
        self._require_active()
        self._end_offset = append_marker(self.partition, end, self._clock.time_ms())
        self.machine.replay_end_transaction(end.producer_id, committed=end.committed)
        self._answer_when_committed([CoordinatorAnswer(waiter, None)])

    def _require_active(self) -> None:
        if self.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is ShardState.CLOSED or not self.partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def submit(self, operation: Callable[[], AnyDecision]) -> bool:
        """Run an event of the machine itself: a deadline, or the consequence of an answer; a closed shard does nothing.

        Returns False when the event failed or its records were refused, so that the caller keeps the deadline.
        """
        if self.state is not ShardState.ACTIVE:
            return True
        self.deadlines.begin()
        try:
            decision = operation()
        except Exception as error:  # a bug, or a damaged group: all deadlines, this one too, go on
            log.error("shard.event_failed", partition=str(self.partition.topic_partition), exc_info=error)
            self.deadlines.restore()
            return False
        return self._settle(decision)

    def _settle(self, decision: AnyDecision, producer: TransactionalProducer | None = None) -> bool:
        if decision.records:
            try:
                self._append(decision, producer)
            except KafkaError as error:
                refusal = KafkaError(coordinator_error(error.code), error.message)
                self._complain(error)
                self.deadlines.restore()
                _deliver([CoordinatorAnswer(answer.waiter, refusal) for answer in decision.response])
                return False
        if decision.response:
            self._answer_when_committed(decision.response)
        return True

    def _complain(self, error: KafkaError) -> None:
        """Logs at most once per second: a log that refuses writes may refuse many events a second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + _COMPLAINT_INTERVAL_MS
            log.warning("shard.append_failed", partition=str(self.partition.topic_partition), reason=error.message)

    def _append(self, decision: AnyDecision, producer: TransactionalProducer | None) -> None:
        now_ms = self._clock.time_ms()
        records = decision.records
        try:
            simple = [SimpleRecord(now_ms, *self._spec.encode(record)) for record in records]
        except struct.error as error:
            # The log already has the last possible epoch: the event fails and changes nothing.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"A record cannot be written: {error}.") from error
        if decision.atomic:
            self._append_batch(records, simple, now_ms, producer)
            return
        at = 0
        for count in _batches(simple, self.partition.log.config.max_message_bytes):
            self._append_batch(records[at : at + count], simple[at : at + count], now_ms, producer)
            at += count

    def _append_batch(
        self, records: list[Any], simple: list[SimpleRecord], now_ms: int, producer: TransactionalProducer | None
    ) -> None:
        if producer is None:
            batch = build_batch(simple, compression=self._spec.compression)
            result = self.partition.append_internal(batch, now_ms=now_ms)
        else:
            batch = build_batch(
                simple,
                compression=self._spec.compression,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            result = self.partition.append_internal(batch, now_ms=now_ms, verification_guard=producer.verification)
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for offset, record in enumerate(records, result.first_offset):
            self.machine.replay(offset, producer_id, record)
        self._end_offset = result.last_offset + 1

    # Answers

    def _answer_when_committed(self, answers: list[CoordinatorAnswer]) -> None:
        if self.partition.high_watermark >= self._end_offset:
            _deliver(answers)
            return
        key = object()
        timeout_ms = self._spec.commit_timeout_ms
        self._parked[key] = answers, self._timers.call_later(timeout_ms, partial(self._give_up, key))
        self.partition.when_high_watermark(self._end_offset, partial(self._release, key))

    def _release(self, key: object) -> None:
        parked = self._parked.pop(key, None)
        if parked is not None:
            answers, timer = parked
            timer.cancel()
            _deliver(answers)

    def _give_up(self, key: object) -> None:
        parked = self._parked.pop(key, None)
        if parked is not None:
            error = KafkaError(coordinator_error(ErrorCode.REQUEST_TIMED_OUT))
            _deliver([CoordinatorAnswer(answer.waiter, error) for answer in parked[0]])


_COORDINATOR_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """The code for a client whose append failed: an error of the coordinator's topic must not look like an error of the
    client's topic."""
    return _COORDINATOR_ERRORS.get(code, code)


def _batches(records: list[SimpleRecord], max_bytes: int) -> Iterator[int]:
    """How many of the records go into each batch. A record that is too large by itself is refused by the log, alone."""
    count, size = 0, HEADER_BYTES
    for record in records:
        bytes_of_one = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        if count and size + bytes_of_one > max_bytes:
            yield count
            count, size = 0, HEADER_BYTES
        count += 1
        size += bytes_of_one
    yield count


def _deliver(answers: list[CoordinatorAnswer]) -> None:
    for waiter, response in answers:
        waiter(response)
