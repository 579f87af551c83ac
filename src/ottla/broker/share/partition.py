"""A share-partition of a partition that this broker leads: its records in flight, their locks and the stored state.

The share-partition reads its state once, through the persister. From then on only this module changes the state, as
long as the leader's epoch lasts. One write is under way at a time; later changes go with the next write, so that no
older state can overtake a newer state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.share import group_limits
from ottla.coordinator.share.batches import UNKNOWN_START_OFFSET, StateBatch
from ottla.coordinator.share.in_flight import BATCH_NOT_FOUND, Acknowledgement, InFlight, InFlightLimits, StateChange
from ottla.coordinator.share.records import SharePartitionKey
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated import write_share_group_state_request as write

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.broker.share.persister import BrokerSharePersister
    from ottla.env.seams import Timer
    from ottla.protocol.generated.read_share_group_state_response import PartitionResult
    from ottla.replication.partition import Partition

log = get_logger(__name__)

Done = Callable[[KafkaError | None], None]

_FENCING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class _Write(NamedTuple):
    change: StateChange
    done: Done


class SharePartition:
    def __init__(
        self,
        broker: SharePlane,
        key: SharePartitionKey,
        partition: Partition,
        persister: BrokerSharePersister,
        on_fenced: Callable[[SharePartition], None],
    ) -> None:
        self._broker = broker
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._persister = persister
        self._on_fenced = on_fenced
        self.in_flight: InFlight | None = None
        """None until the state has been read."""
        self.error: KafkaError | None = None
        """Why the state could not be read, or why the share-partition is fenced."""
        self._state_epoch = 0
        self._watchers: dict[object, Callable[[], None]] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._queue: list[_Write] = []
        self._writing = False
        self.lock_timeouts = 0
        """Records whose lock ended before their member acknowledged them."""
        self.retiring = False
        """The group has no member here any more: the share-partition is removed once everything is written."""
        persister.read(key, self.leader_epoch, self._on_read)

    # The state

    @property
    def limits(self) -> InFlightLimits:
        return group_limits.limits(self._broker, self.key.group_id)

    def _on_read(self, answer: PartitionResult | KafkaError) -> None:
        if self.error is not None:
            return
        if isinstance(answer, KafkaError):
            self.fence(_client_error(answer))
            return
        start, undecided = answer.start_offset, answer.start_offset == UNKNOWN_START_OFFSET
        if undecided:
            start = group_limits.first_offset(self._broker, self.key.group_id, self.partition)
        batches = [
            StateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in answer.state_batches
        ]
        self._state_epoch = answer.state_epoch
        self.in_flight = InFlight(start, batches)
        self.in_flight.log_start_moved(self.partition.log.log_start_offset)
        log.debug("share_partition.loaded", partition=str(self.key), start_offset=start, batches=len(batches))
        if undecided:
            # Written down at once: a leader that comes before the first acknowledgement must not begin elsewhere.
            self._write(StateChange(), lambda _error: None)
        self._wake()

    def fence(self, error: KafkaError) -> None:
        """Stop the share-partition: another leader may have it by now, or its state cannot be read."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        queue, self._queue = self._queue, []
        self._on_fenced(self)
        for queued in queue:
            queued.done(error)
        self._wake()
        self._watchers.clear()

    def retire(self) -> None:
        """Fence the share-partition when nothing is left to be written; its next user reads the state again."""
        self.retiring = True
        if self.in_flight is not None and not self._writing and not self._queue:
            self.fence(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # Those who wait for records

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        self._watchers[key] = callback

    def unwatch(self, key: object) -> None:
        self._watchers.pop(key, None)

    def _wake(self) -> None:
        for callback in list(self._watchers.values()):
            callback()

    # Deliveries

    def lock_until_ms(self) -> float:
        duration_ms = group_limits.record_lock_duration_ms(self._broker, self.key.group_id)
        return self._broker.clock.monotonic_ms() + duration_ms

    def acquired(self) -> None:
        """Records have been given out: their locks end."""
        self._watch_locks()

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done) -> None:
        if self.in_flight is None:
            # No record has been given out yet, so none can be acknowledged: Kafka answers the same, even to the first
            # request.
            done(self.error or KafkaError(ErrorCode.INVALID_RECORD_STATE, BATCH_NOT_FOUND))
            return
        try:
            change = self.in_flight.acknowledge(member_id, acknowledgements, self.limits, self.lock_until_ms())
        except KafkaError as error:
            done(error)
            return
        self._settle(change, done)

    def release(self, member_id: str) -> None:
        """The member is gone."""
        if self.in_flight is not None and self.error is None:
            self._settle(self.in_flight.release(member_id, self.limits), lambda _error: None)

    def _settle(self, change: StateChange, done: Done) -> None:
        self._watch_locks()
        if change:
            self._write(change, done)
        else:
            done(None)

    # Locks

    def _watch_locks(self) -> None:
        deadline_ms = None if self.in_flight is None else self.in_flight.next_deadline_ms
        if deadline_ms is None or self.error is not None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._broker.clock.monotonic_ms(), 0)
        self._timer = self._broker.timers.call_later(delay_ms, self._on_lock_end)

    def _on_lock_end(self) -> None:
        self._timer = None
        if self.in_flight is None or self.error is not None:
            return
        change = self.in_flight.expire(self._broker.clock.monotonic_ms(), self.limits)
        self.lock_timeouts += sum(span.last - span.first + 1 for span in change.ranges)
        if change:
            log.info("share_partition.locks_ended", partition=str(self.key), ranges=len(change.ranges))
            self._write(change, lambda _error: None)
            self._wake()
        self._watch_locks()

    # Writing

    def _write(self, change: StateChange, done: Done) -> None:
        if self.error is not None:
            done(self.error)
            return
        self._queue.append(_Write(change, done))
        if not self._writing:
            self._send()

    def _send(self) -> None:
        in_flight = self.in_flight
        if in_flight is None or not self._queue:
            return
        writes, self._queue = self._queue, []
        self._writing = True
        batches = [
            write.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for queued in writes
            for b in queued.change.batches
        ]
        data = write.PartitionData(
            self.key.partition,
            self._state_epoch,
            self.leader_epoch,
            in_flight.start_offset,
            in_flight.complete_count,
            batches,
        )
        self._persister.write(self.key, data, lambda answer: self._on_written(in_flight, writes, answer))

    def _on_written(self, in_flight: InFlight, writes: list[_Write], answer: object) -> None:
        self._writing = False
        error = _client_error(answer) if isinstance(answer, KafkaError) else None
        for queued in writes:
            if error is None:
                in_flight.commit(queued.change)
            else:
                in_flight.roll_back(queued.change)
        if error is not None:
            log.info("share_partition.not_written", partition=str(self.key), reason=error.message)
        for queued in writes:
            queued.done(error)
        if error is not None and error.code in _FENCING:
            self.fence(error)
            return
        self._watch_locks()
        self._wake()
        if self.error is None:
            self._send()
        if self.retiring:
            self.retire()


def _client_error(error: KafkaError) -> KafkaError:
    """The error that a client gets for an error of the share coordinator."""
    if error.code in _COORDINATOR:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
