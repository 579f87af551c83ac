"""A share-partition in its leader's memory: which member has which records, how often they were delivered.

No I/O. One member at a time acquires a record. An acknowledgement makes a `StateChange`, which counts once it is
written (`commit`); a failed write undoes the change (`roll_back`). The start offset only moves forward, over records
that no member will get any more. A record that comes back after `delivery_count_limit` deliveries is archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.coordinator.share.batches import StateBatch
from ottla.coordinator.share.runs import TERMINAL, RecordState, Run, Runs
from ottla.model.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATE_AFTER = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
BATCH_NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
_ONGOING = "The record state is invalid. The acknowledgement of delivery could not be completed."
_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
_LEAST_THROTTLE_COUNT = 2
_LONE_LAST_DELIVERY_FROM = 3


class InFlightLimits(NamedTuple):
    """The current settings of the group."""

    delivery_count_limit: int
    max_record_locks: int
    renew_enabled: bool = True


class OffsetSpan(NamedTuple):
    """The offsets of one record batch."""

    first: int
    last: int


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One type for all offsets, or one type for each offset."""


class AcquireRequest(NamedTuple):
    """The limits of a member's fetch."""

    member_id: str
    max_records: int
    batch_size: int
    exactly: bool
    """Not a record above `max_records`; otherwise record batches stay whole."""
    deadline_ms: float


class StateChange:
    """The state batches to write."""

    __slots__ = ("batches", "ranges")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.ranges: list[OffsetSpan] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    def add(self, run: Run) -> None:
        self.ranges.append(OffsetSpan(run.first, run.last))
        self.batches.append(StateBatch(run.first, run.last, run.delivery_count, run.state))


class InFlight:
    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self._runs = Runs()
        for batch in batches:
            self._fill(batch.first_offset, RecordState.AVAILABLE)
            first = max(batch.first_offset, self.next_offset)
            if first <= batch.last_offset:
                # A batch in an unknown state is delivered again: better twice than never.
                is_valid = batch.delivery_state in RecordState.__members__.values()
                state = RecordState(batch.delivery_state) if is_valid else RecordState.AVAILABLE
                if state is RecordState.ACQUIRED:
                    state = RecordState.AVAILABLE
                self._runs.append(Run(first, batch.last_offset, state, batch.delivery_count))
        self._advance()

    # Reading

    @property
    def next_offset(self) -> int:
        """The first offset that no member has got yet."""
        return self._runs.last_offset + 1 if self._runs else self.start_offset

    @property
    def next_fetch_offset(self) -> int:
        """The first record that may be given out."""
        return next((run.first for run in self._runs.all if run.is_free), self.next_offset)

    @property
    def in_flight(self) -> int:
        return self.next_offset - self.start_offset

    @property
    def complete_count(self) -> int:
        """Records from the start offset on that are done, written down or just being so."""
        return sum(len(run) for run in self._runs.all if run.state in TERMINAL)

    @property
    def next_deadline_ms(self) -> float | None:
        """When the first lock ends."""
        return min((run.deadline_ms for run in self._runs.all if _is_locked(run)), default=None)

    def can_acquire(self, limits: InFlightLimits) -> bool:
        return self.in_flight < limits.max_record_locks or self.next_fetch_offset < self.next_offset

    @property
    def runs(self) -> list[Run]:
        return self._runs.all

    # Giving out

    def acquire(
        self,
        request: AcquireRequest,
        spans: Sequence[OffsetSpan],
        fetch_offset: int,
        limits: InFlightLimits,
        skip: Iterable[OffsetSpan] = (),
    ) -> list[Acquired]:
        """Acquire the free records of the record batches read at `fetch_offset`; `skip` are aborted batches."""
        if not spans or spans[-1].last < self.start_offset or request.max_records <= 0:
            return []
        self._archive_free(fetch_offset, spans[0].first - 1)
        last = spans[-1].last
        budget = min(request.max_records, limits.max_record_locks - self.in_flight)
        if budget <= 0:
            # No room for new records, but released records may be delivered again.
            last = min(last, self.next_offset - 1)
            budget = min(request.max_records, last - fetch_offset + 1)
            if budget <= 0:
                return []
        before = self.next_offset
        acquired, go_on = self._take_again(request, spans, last, budget, limits)
        remaining = budget - sum(span.last - span.first + 1 for span in acquired)
        if go_on and remaining > 0 and last >= before:
            acquired += self._take_new(request, spans, max(before, spans[0].first), last, remaining)
        for span in skip:
            self._archive_taken(span, acquired)
        answer = [
            Acquired(run.first, run.last, run.delivery_count)
            for span in acquired
            for run in self._runs.touching(*span)
            if run.state is RecordState.ACQUIRED
        ]
        self._advance()
        return answer

    def _take_again(
        self,
        request: AcquireRequest,
        spans: Sequence[OffsetSpan],
        last: int,
        budget: int,
        limits: InFlightLimits,
    ) -> tuple[list[OffsetSpan], bool]:
        """Acquire released records.

        Often delivered records come in small portions, at the last delivery alone. A record that crashes its consumers
        then does not use up the deliveries of many others.
        """
        acquired: list[OffsetSpan] = []
        count = 0
        throttle_count = max(_LEAST_THROTTLE_COUNT, -(-limits.delivery_count_limit // 2))
        for run in self._runs.touching(spans[0].first, last):
            if count >= budget:
                break
            if not run.is_free:
                continue
            first, end = max(run.first, spans[0].first), min(run.last, last)
            throttled = run.delivery_count >= throttle_count
            if throttled and acquired:
                return acquired, False
            if throttled:
                helping = max(1, len(run) >> (run.delivery_count - throttle_count + 1))
                last_chance = run.delivery_count == limits.delivery_count_limit - 1
                if last_chance and limits.delivery_count_limit >= _LONE_LAST_DELIVERY_FROM:
                    helping = 1
                end = min(end, first + helping - 1)
            if request.exactly:
                end = min(end, first + budget - count - 1)
            for piece in self._runs.within(first, end):
                piece.state, piece.member_id, piece.deadline_ms = (
                    RecordState.ACQUIRED,
                    request.member_id,
                    request.deadline_ms,
                )
                piece.delivery_count += 1
            acquired.append(OffsetSpan(first, end))
            count += end - first + 1
            if throttled:
                return acquired, False
        return acquired, True

    def _take_new(
        self, request: AcquireRequest, spans: Sequence[OffsetSpan], first: int, last: int, budget: int
    ) -> list[OffsetSpan]:
        if not self._runs:
            self.start_offset = first
        self._fill(first, RecordState.ARCHIVED)
        if budget < last - first + 1:
            last = first + budget - 1
            if not request.exactly:
                last = next(span.last for span in spans if span.last >= last)
        acquired = []
        begin = first
        if not request.exactly and last - first + 1 > request.batch_size:
            for span in spans:
                if span.first > last:
                    break
                if span.first - begin >= request.batch_size:
                    acquired.append(OffsetSpan(begin, span.first - 1))
                    begin = span.first
        acquired.append(OffsetSpan(begin, last))
        for span in acquired:
            self._runs.append(Run(*span, RecordState.ACQUIRED, 1, request.member_id, request.deadline_ms))
        return acquired

    def _archive_taken(self, span: OffsetSpan, taken: list[OffsetSpan]) -> None:
        for acquired in taken:
            first, last = max(span.first, acquired.first), min(span.last, acquired.last)
            if first <= last:
                for run in self._runs.within(first, last):
                    if run.state is RecordState.ACQUIRED:
                        run.state, run.member_id = RecordState.ARCHIVED, None

    def _archive_free(self, first: int, last: int) -> None:
        """The log has no such records any more."""
        if first <= last:
            for run in self._runs.within(first, last):
                if run.is_free:
                    run.state = RecordState.ARCHIVED

    # Taking back

    def acknowledge(
        self,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        limits: InFlightLimits,
        renewed_until_ms: float,
    ) -> StateChange:
        """All of them or, with a KafkaError, none."""
        steps: list[tuple[int, int, int]] = []
        for acknowledgement in acknowledgements:
            if acknowledgement.last_offset >= self.start_offset:
                self._check_tracked(acknowledgement)
                for first, last, kind in _steps(acknowledgement, self.start_offset):
                    if steps and first <= steps[-1][1]:
                        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, _NOT_ACQUIRED)
                    self._check_acquired(member_id, first, last, kind, limits)
                    steps.append((first, last, kind))
        change = StateChange()
        for first, last, kind in steps:
            for run in self._runs.within(first, last):
                if kind == RENEW:
                    run.deadline_ms = renewed_until_ms
                else:
                    self._begin(run, _STATE_AFTER[kind], change, limits)
        return change

    def release(self, member_id: str, limits: InFlightLimits) -> StateChange:
        """Release all records of the member, which is gone."""
        change = StateChange()
        for run in self._runs.all:
            if run.member_id == member_id and _is_locked(run):
                self._begin(run, RecordState.AVAILABLE, change, limits)
        return change

    def expire(self, now_ms: float, limits: InFlightLimits) -> StateChange:
        """Free the records whose lock has ended, at once; the write is for later leaders."""
        change = StateChange()
        for run in self._runs.all:
            if _is_locked(run) and run.deadline_ms <= now_ms:
                run.state, run.member_id = _returned(run, limits), None
                change.add(run)
        return change

    def commit(self, change: StateChange) -> None:
        """The change is written down."""
        for run in self._changed(change):
            run.change = None
            run.owner_before = None
        self._advance()
        self._runs.join_neighbours()

    def roll_back(self, change: StateChange) -> None:
        """The write failed: the member keeps the records until the lock ends."""
        for run in self._changed(change):
            run.state, run.member_id = RecordState.ACQUIRED, run.owner_before
            run.change = None
            run.owner_before = None

    def log_start_moved(self, offset: int) -> None:
        """The log begins at `offset` now."""
        if offset > self.start_offset:
            self._runs.drop_before(offset)
            self.start_offset = offset
            self._advance()

    def _begin(self, run: Run, state: RecordState, change: StateChange, limits: InFlightLimits) -> None:
        run.change = change
        run.owner_before = run.member_id
        run.state = _returned(run, limits) if state is RecordState.AVAILABLE else state
        run.member_id = None
        change.add(run)

    def _changed(self, change: StateChange) -> list[Run]:
        return [run for span in change.ranges for run in self._runs.touching(*span) if run.change is change]

    def _check_tracked(self, acknowledgement: Acknowledgement) -> None:
        if not self._runs or (
            acknowledgement.first_offset < self.start_offset and acknowledgement.last_offset < self.start_offset
        ):
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, BATCH_NOT_FOUND)
        for offset, which in ((acknowledgement.first_offset, "first"), (acknowledgement.last_offset, "last")):
            if offset >= self.next_offset:
                message = f"Batch record not found. The {which} offset in request is past acquired records."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def _check_acquired(self, member_id: str, first: int, last: int, kind: int, limits: InFlightLimits) -> None:
        for run in self._runs.touching(first, last):
            if run.change is not None:
                message = _ONGOING
            elif run.state is not RecordState.ACQUIRED:
                message = "The batch cannot be acknowledged. The batch is not in the acquired state."
            elif run.member_id != member_id:
                message = "Member is not the owner of batch record"
            elif kind == RENEW and not limits.renew_enabled:
                message = "Renewing acquisition locks is not enabled for the group."
            else:
                continue
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, message)

    # Keeping order

    def _fill(self, offset: int, state: RecordState) -> None:
        """Offsets before `offset` that nothing is known of."""
        if offset > self.next_offset:
            self._runs.append(Run(self.next_offset, offset - 1, state, 0))

    def _advance(self) -> None:
        moved_to = self._runs.drop_settled()
        if moved_to is not None:
            self.start_offset = moved_to


def _is_locked(run: Run) -> bool:
    return run.state is RecordState.ACQUIRED and run.change is None


def _returned(run: Run, limits: InFlightLimits) -> RecordState:
    return RecordState.ARCHIVED if run.delivery_count >= limits.delivery_count_limit else RecordState.AVAILABLE


def _steps(acknowledgement: Acknowledgement, start_offset: int) -> Iterable[tuple[int, int, int]]:
    """Ranges of one kind of acknowledgement, from the start offset on."""
    if len(acknowledgement.types) == 1:
        yield max(acknowledgement.first_offset, start_offset), acknowledgement.last_offset, acknowledgement.types[0]
        return
    begin = max(acknowledgement.first_offset, start_offset)
    for offset in range(begin + 1, acknowledgement.last_offset + 2):
        kind = acknowledgement.types[begin - acknowledgement.first_offset]
        if offset > acknowledgement.last_offset or acknowledgement.types[offset - acknowledgement.first_offset] != kind:
            yield begin, offset - 1, kind
            begin = offset
