"""The share machine: the share-partitions of one partition of `__share_group_state`.

Requests decide; only `replay` changes the state. A smaller state epoch belongs to an older group with the same id, and
a smaller leader epoch to an older leader of the topic's partition: both are refused. A request for several
share-partitions is an event for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ottla.coordinator.decisions import CoordinatorAnswer, Waiter
from ottla.coordinator.runtime import AnyDecision
from ottla.coordinator.share.batches import UNKNOWN_START_OFFSET, StateBatch, combine
from ottla.coordinator.share.records import SharePartitionKey, ShareRecord, SnapshotRecord, UpdateRecord
from ottla.coordinator.share.settings import ShareCoordinatorSettings
from ottla.coordinator.share.state import NO_EPOCH, UNKNOWN_COUNT, ShareState, initial_state
from ottla.coordinator.timers import KeyedTimers
from ottla.env.seams import Clock
from ottla.metadata.image import MetadataImage
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerId
from ottla.protocol.generated import read_share_group_state_response as read_response
from ottla.protocol.generated import read_share_group_state_summary_response as summary_response
from ottla.protocol.generated import write_share_group_state_request as write_request

ShareDecision: TypeAlias = Decision[ShareRecord, list[CoordinatorAnswer]]
Deadlines: TypeAlias = KeyedTimers[Callable[[], AnyDecision]]

_COLD_KEY = ("cold snapshots",)
_FORGET_KEY = ("forget topics",)


class ShareStateMachine:
    def __init__(self, settings: ShareCoordinatorSettings, clock: Clock, deadlines: Deadlines) -> None:
        self._settings = settings
        self._clock = clock
        self._deadlines = deadlines
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.snapshot_offsets: dict[SharePartitionKey, int] = {}
        """The offset of each share-partition's last snapshot: records below the smallest offset are not needed any
        more."""
        self._image = MetadataImage()

    # Requests

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, waiter: Waiter) -> ShareDecision:
        """A new beginning. With an explicit start offset, an existing share-partition forgets its deliveries.

        Without a start offset, a group asks for a state that may exist already: the answer to its first request was lost, or
        comes late. By then members may have accepted records, which must stay accepted.
        """
        self._check_place(key)
        state_before = self.states.get(key)
        if state_before is not None and NO_EPOCH != state_epoch < state_before.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if state_before is not None and start_offset == UNKNOWN_START_OFFSET:
            return Decision([CoordinatorAnswer(waiter, None)])
        snapshot_epoch = 0 if state_before is None else state_before.snapshot_epoch + 1
        state = initial_state(state_epoch, start_offset, snapshot_epoch, self._clock.time_ms())
        return Decision([CoordinatorAnswer(waiter, None)], [state.snapshot(key)])

    def read(self, key: SharePartitionKey, leader_epoch: int, waiter: Waiter) -> ShareDecision:
        """The whole state, for a new leader; from then on older leaders are refused."""
        state = self._led_state(key, leader_epoch, "Read")
        self._check_topic(key)
        batches = [
            read_response.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in state.batches
        ]
        answer = read_response.PartitionResult(
            key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=batches,
        )
        records: list[ShareRecord] = []
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            led = replace(state, leader_epoch=leader_epoch)
            records.append(self._change(key, led, state.start_offset, state.delivery_complete_count, ()))
        return Decision([CoordinatorAnswer(waiter, answer)], records)

    def summary(self, key: SharePartitionKey, waiter: Waiter) -> ShareDecision:
        self._check_place(key)
        state = self.states.get(key)
        if state is None:
            answer = summary_response.PartitionResult(
                key.partition,
                state_epoch=0,
                leader_epoch=0,
                start_offset=UNKNOWN_START_OFFSET,
                delivery_complete_count=UNKNOWN_COUNT,
            )
        else:
            answer = summary_response.PartitionResult(
                key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )
        return Decision([CoordinatorAnswer(waiter, answer)], [])

    def write(self, key: SharePartitionKey, data: write_request.PartitionData, waiter: Waiter) -> ShareDecision:
        state = self._led_state(key, data.leader_epoch, "Write")
        if NO_EPOCH != data.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        batches = tuple(
            StateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in data.state_batches
        )
        record = self._change(key, state, data.start_offset, data.delivery_complete_count, batches)
        return Decision([CoordinatorAnswer(waiter, None)], [record])

    def delete(self, key: SharePartitionKey, waiter: Waiter) -> ShareDecision:
        self._check_place(key)
        records: list[ShareRecord] = [SnapshotRecord(key, None)] if key in self.states else []
        return Decision([CoordinatorAnswer(waiter, None)], records)

    def schedule_forgetting(self) -> None:
        """Topics were deleted. The deadline runs again while its records are refused."""
        self._deadlines.schedule(_FORGET_KEY, 0, self.forget_gone)

    def forget_gone(self) -> ShareDecision:
        """The states of topics that are not there any more."""
        topics = self._image.topics_by_id
        records: list[ShareRecord] = [SnapshotRecord(key, None) for key in self.states if key.topic_id not in topics]
        return Decision([], records, atomic=False)

    def _led_state(self, key: SharePartitionKey, leader_epoch: int, operation: str) -> ShareState:
        _check_partition(key)
        state = self.states.get(key)
        if state is None:
            message = f"{operation} operation on uninitialized share partition not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if NO_EPOCH != leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        return state

    def _check_place(self, key: SharePartitionKey) -> None:
        _check_partition(key)
        self._check_topic(key)

    def _check_topic(self, key: SharePartitionKey) -> None:
        topic = self._image.topics_by_id.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self,
        key: SharePartitionKey,
        state: ShareState,
        start_offset: int,
        complete_count: int,
        batches: tuple[StateBatch, ...],
    ) -> ShareRecord:
        """An update, or after enough of them a snapshot."""
        if state.updates < self._settings.share_coordinator_snapshot_update_records_per_snapshot:
            return state.update(key, start_offset, complete_count, batches)
        start = state.start_offset if start_offset == UNKNOWN_START_OFFSET else start_offset
        now_ms = self._clock.time_ms()
        return replace(
            state,
            snapshot_epoch=state.snapshot_epoch + 1,
            start_offset=start,
            delivery_complete_count=complete_count,
            batches=combine(state.batches, batches, start),
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        ).snapshot(key)

    # Life of the shard

    def replay(self, offset: int, _producer_id: ProducerId, record: ShareRecord) -> None:
        if isinstance(record, UpdateRecord):
            state = self.states.get(record.key)
            if state is not None:
                self.states[record.key] = state.updated(record.value)
        elif record.value is None:
            self.states.pop(record.key, None)
            self.snapshot_offsets.pop(record.key, None)
        else:
            self.states[record.key] = ShareState.from_snapshot(record.value)
            self.snapshot_offsets[record.key] = offset

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """This log has no transactions."""

    def on_loaded(self) -> ShareDecision:
        self._schedule_cold_snapshots()
        self.schedule_forgetting()
        return self.forget_gone()

    def on_unloaded(self) -> ShareDecision:
        return Decision([], [])

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    # Room in the log

    @property
    def first_needed_offset(self) -> int | None:
        return min(self.snapshot_offsets.values(), default=None)

    def _schedule_cold_snapshots(self) -> None:
        interval_ms = self._settings.share_coordinator_cold_partition_snapshot_interval_ms
        self._deadlines.schedule(_COLD_KEY, interval_ms, self._snapshot_cold)

    def _snapshot_cold(self) -> ShareDecision:
        """Share-partitions at rest are written again once, so that the log before them can go."""
        self._schedule_cold_snapshots()
        now_ms = self._clock.time_ms()
        interval_ms = self._settings.share_coordinator_cold_partition_snapshot_interval_ms
        if all(state.create_timestamp_ms != state.write_timestamp_ms for state in self.states.values()):
            return Decision([], [])
        return Decision(
            [],
            [
                replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms).snapshot(key)
                for key, state in self.states.items()
                if now_ms - state.write_timestamp_ms >= interval_ms
            ],
            atomic=False,
        )


def _check_partition(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
