"""A shard: one partition of the offsets topic and the machine that it holds, from load to unload.

Events (requests, timers) run one at a time and to their end: decide, append the records as one batch, replay them,
and let the answers go when everything that the event may have seen is committed. An append that fails changes nothing
durable and turns the event's answers into its error. When leadership goes, so does the shard, with all its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from ottla.coordinator.decisions import Answer, GroupDecision, TimedOperation
from ottla.coordinator.groups.machine import GroupMachine
from ottla.coordinator.loader import Loader
from ottla.coordinator.records import CoordinatorRecord, encode
from ottla.coordinator.settings import GroupSettings
from ottla.coordinator.timers import KeyedTimers
from ottla.env.logging import get_logger
from ottla.env.seams import Clock, RandomSource, Timer, Timers
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.replication.partition import Partition

log = get_logger(__name__)


class ShardState(Enum):
    LOADING = "Loading"
    ACTIVE = "Active"
    CLOSED = "Closed"


class Shard:
    def __init__(
        self, partition: Partition, settings: GroupSettings, clock: Clock, random: RandomSource, timers: Timers
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._deadlines: KeyedTimers[TimedOperation] = KeyedTimers(timers, clock, self._on_deadline)
        self.machine = GroupMachine(settings, clock, random, self._deadlines)
        self._end_offset = 0
        self._parked: dict[object, tuple[list[Answer], Timer]] = {}
        self._loader = Loader(partition.log, self.machine)

    # Load and unload

    def load(self) -> None:
        """Replay the log; small logs at once, large ones in pieces between other work."""
        if self.state is not ShardState.LOADING:
            return
        try:
            done = self._loader.load_some(self._settings.offsets_load_buffer_size)
        except KafkaError as error:
            log.error("shard.load_failed", partition=str(self.partition.topic_partition), reason=error.message)
            self.close()
            return
        if not done:
            self._timers.call_soon(self.load)
            return
        self.state = ShardState.ACTIVE
        self._end_offset = self.partition.log.log_end_offset
        log.debug(
            "shard.loaded",
            partition=str(self.partition.topic_partition),
            groups=len(self.machine.groups),
            skipped=self._loader.skipped,
        )
        self._settle(self.machine.on_loaded())

    def close(self) -> None:
        """We do not lead any more: everybody who waits must look for the new coordinator."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self._deadlines.cancel_all()
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        waiting = [answer for answers, _ in self._parked.values() for answer in answers]
        for _, timer in self._parked.values():
            timer.cancel()
        self._parked.clear()
        waiting += self.machine.on_unloaded().response
        _deliver([Answer(answer.waiter, error) for answer in waiting])

    # Events

    def run(self, operation: Callable[[GroupMachine], GroupDecision]) -> None:
        """One event. KafkaError when the shard cannot take it or the operation refuses it; nothing happened then."""
        if self.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is ShardState.CLOSED or not self.partition.is_leader:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        self._settle(operation(self.machine))

    def _on_deadline(self, operation: TimedOperation) -> None:
        if self.state is ShardState.ACTIVE:
            self._settle(operation())

    def _settle(self, decision: GroupDecision) -> None:
        if decision.records:
            try:
                self._append(decision.records)
            except KafkaError as error:
                refusal = KafkaError(coordinator_error(error.code), error.message)
                log.warning("shard.append_failed", partition=str(self.partition.topic_partition), reason=error.message)
                _deliver([Answer(answer.waiter, refusal) for answer in decision.response])
                return
        if decision.response:
            self._answer_when_committed(decision.response)

    def _append(self, records: list[CoordinatorRecord]) -> None:
        now_ms = self._clock.time_ms()
        batch = build_batch(
            [SimpleRecord(now_ms, *encode(record)) for record in records],
            compression=self._settings.offsets_topic_compression_codec,
        )
        result = self.partition.append_internal(batch, now_ms=now_ms)
        for offset, record in enumerate(records, result.first_offset):
            self.machine.replay(offset, NO_PRODUCER_ID, record)
        self._end_offset = result.last_offset + 1

    # Answers

    def _answer_when_committed(self, answers: list[Answer]) -> None:
        if self.partition.high_watermark >= self._end_offset:
            _deliver(answers)
            return
        key = object()
        timeout_ms = self._settings.offsets_commit_timeout_ms
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
            _deliver([Answer(answer.waiter, error) for answer in parked[0]])


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
    """What a client of the coordinator hears of an append that failed: it must not take it for its own topic's."""
    return _COORDINATOR_ERRORS.get(code, code)


def _deliver(answers: list[Answer]) -> None:
    for waiter, response in answers:
        waiter(response)
