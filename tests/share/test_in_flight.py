"""A share-partition under random fetches, acknowledgements, failed writes, lock ends and new leaders.

What always holds: a record is with one member at a time; what was accepted and written down is never given out again;
what nobody accepted or rejected is not lost below the delivery limit; the start offset never goes back; and a leader
that begins with what was written down goes on from there.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.share.batches import StateBatch, combine
from ottla.coordinator.share.in_flight import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    AcquireRequest,
    InFlight,
    InFlightLimits,
    OffsetSpan,
    StateChange,
)
from ottla.coordinator.share.runs import RecordState
from ottla.model.errors import ErrorCode, KafkaError

MEMBERS = ("a", "b", "c")
LOCK_MS = 100.0


class SharePartitionMachine(RuleBasedStateMachine):
    """The model keeps, for each offset, who has it, how often it was given out and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.log_end = 0
        self.spans: list[OffsetSpan] = []
        self.limits = InFlightLimits(3, 40)
        self.subject = InFlight(0)
        self.written: tuple[StateBatch, ...] = ()
        self.written_start = 0
        self.pending: list[StateChange] = []
        self.holder: dict[int, tuple[str, float]] = {}
        self.deliveries: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        """offset -> ACCEPT or REJECT, once written down."""
        self.in_doubt: dict[int, int] = {}
        self.last_start = 0

    @initialize(limit=st.integers(2, 5), locks=st.integers(5, 60))
    def choose(self, limit: int, locks: int) -> None:
        self.limits = InFlightLimits(limit, locks)

    @rule(size=st.integers(1, 12))
    def produce(self, size: int) -> None:
        self.spans.append(OffsetSpan(self.log_end, self.log_end + size - 1))
        self.log_end += size

    @rule(
        member=st.sampled_from(MEMBERS),
        batches=st.integers(1, 4),
        records=st.integers(1, 30),
        batch_size=st.integers(1, 20),
        exactly=st.booleans(),
    )
    def fetch(self, member: str, batches: int, records: int, batch_size: int, *, exactly: bool) -> None:
        offset = self.subject.next_fetch_offset
        read = [span for span in self.spans if span.last >= offset][:batches]
        if not self.subject.can_acquire(self.limits):
            return
        deadline = self.now_ms + LOCK_MS
        request = AcquireRequest(member, records, batch_size, exactly, deadline)
        acquired = self.subject.acquire(request, read, offset, self.limits)
        if read:
            assert acquired, "there was something to give"
        given = [o for each in acquired for o in range(each.first_offset, each.last_offset + 1)]
        if exactly:
            assert len(given) <= records
        for each in acquired:
            for number in range(each.first_offset, each.last_offset + 1):
                assert number not in self.holder, "two members with one record"
                assert number not in self.ended, "a finished record was given out again"
                assert number not in self.in_doubt, "a record was given out while its end was being written"
                self.holder[number] = (member, deadline)
                self.deliveries[number] = self.deliveries.get(number, 0) + 1
                assert self.deliveries[number] <= self.limits.delivery_count_limit
                assert each.delivery_count <= self.deliveries[number]

    @rule(
        member=st.sampled_from(MEMBERS),
        kind=st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]),
        first=st.integers(0, 40),
        size=st.integers(1, 12),
    )
    def acknowledge(self, member: str, kind: int, first: int, size: int) -> None:
        first += self.subject.start_offset
        last = first + size - 1
        row = Acknowledgement(first, last, [kind])
        owned = all(self.holder.get(number, ("",))[0] == member for number in range(first, last + 1))
        try:
            change = self.subject.acknowledge(member, [row], self.limits, self.now_ms + LOCK_MS)
        except KafkaError:
            assert not owned
            return
        assert owned, "somebody acknowledged what they do not have"
        for number in range(first, last + 1):
            if kind == RENEW:
                self.holder[number] = (member, self.now_ms + LOCK_MS)
            else:
                del self.holder[number]
                self.in_doubt[number] = kind
        if change:
            self.pending.append(change)

    @rule(succeeds=st.booleans())
    def write(self, *, succeeds: bool) -> None:
        """The oldest write comes to its end; a failed one brings everything back to whoever had it."""
        if not self.pending:
            return
        change = self.pending.pop(0)
        start = self.subject.start_offset
        numbers = [n for span in change.ranges for n in range(span.first, span.last + 1)]
        if succeeds:
            self.written = combine(self.written, change.batches, start)
            self.written_start = start
            self.subject.commit(change)
            for number in numbers:
                kind = self.in_doubt.pop(number)
                if kind in (ACCEPT, REJECT):
                    self.ended[number] = kind
                elif self.deliveries[number] >= self.limits.delivery_count_limit:
                    self.ended[number] = REJECT
            return
        before = {run.first: run for run in self.subject.runs}
        self.subject.roll_back(change)
        assert before
        for run in self.subject.runs:
            if run.state is RecordState.ACQUIRED:
                for number in range(run.first, run.last + 1):
                    if number in numbers:
                        del self.in_doubt[number]
                        self.holder[number] = (run.member_id or "", run.deadline_ms)

    @rule(member=st.sampled_from(MEMBERS))
    def member_goes(self, member: str) -> None:
        change = self.subject.release(member, self.limits)
        for number in [n for n, (who, _) in self.holder.items() if who == member]:
            del self.holder[number]
            self.in_doubt[number] = RELEASE
        if change:
            self.pending.append(change)

    @rule(passes=st.sampled_from([10.0, 60.0, 120.0]))
    def time_passes(self, passes: float) -> None:
        self.now_ms += passes
        change = self.subject.expire(self.now_ms, self.limits)
        for number in [n for n, (_, until) in self.holder.items() if until <= self.now_ms]:
            del self.holder[number]
            if self.deliveries[number] >= self.limits.delivery_count_limit:
                self.ended[number] = REJECT
        if change:
            self.written = combine(self.written, change.batches, self.subject.start_offset)
            self.written_start = self.subject.start_offset
            self.subject.commit(change)

    @rule()
    def new_leader(self) -> None:
        """Locks are gone with the old leader, writes under way may or may not have been the last word: here not."""
        self.pending.clear()
        self.subject = InFlight(self.written_start, self.written)
        self.holder.clear()
        self.in_doubt.clear()
        # A new leader counts only deliveries that came to something.
        counts = {n: run.delivery_count for run in self.subject.runs for n in range(run.first, run.last + 1)}
        for number in self.deliveries:
            if number not in self.ended:
                self.deliveries[number] = counts.get(number, 0)
        self.last_start = min(self.last_start, self.subject.start_offset)

    @invariant()
    def start_never_goes_back(self) -> None:
        assert self.subject.start_offset >= self.last_start
        self.last_start = self.subject.start_offset

    @invariant()
    def everything_before_the_start_is_done(self) -> None:
        for number in range(min(self.subject.start_offset, self.log_end)):
            assert number in self.ended, f"{number} is lost"

    @invariant()
    def runs_have_neither_gaps_nor_overlaps(self) -> None:
        expected = self.subject.start_offset
        for run in self.subject.runs:
            assert run.first == expected <= run.last
            expected = run.last + 1

    @invariant()
    def locks_are_as_the_model_has_them(self) -> None:
        locked = {
            number: run.member_id
            for run in self.subject.runs
            if run.state is RecordState.ACQUIRED
            for number in range(run.first, run.last + 1)
        }
        assert locked == {number: who for number, (who, _) in self.holder.items()}


SharePartitionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestSharePartition = SharePartitionMachine.TestCase


@pytest.mark.parametrize(
    ("older", "newer", "start", "expected"),
    [
        ([(0, 9, 1, 0)], [(0, 9, 1, 2)], -1, [(0, 9, 1, 2)]),
        ([(0, 9, 1, 0)], [(3, 5, 1, 2)], -1, [(0, 2, 1, 0), (3, 5, 1, 2), (6, 9, 1, 0)]),
        ([(0, 9, 2, 0)], [(3, 5, 1, 2)], -1, [(0, 9, 2, 0)]),
        ([(0, 4, 1, 2)], [(5, 9, 1, 2)], -1, [(0, 9, 1, 2)]),
        ([(0, 4, 1, 2), (5, 9, 1, 0)], [(5, 9, 2, 2)], 3, [(3, 4, 1, 2), (5, 9, 2, 2)]),
        ([(0, 4, 1, 2)], [], 7, []),
        ([(0, 5, 1, 0), (6, 12, 1, 2)], [(4, 8, 2, 0)], -1, [(0, 3, 1, 0), (4, 8, 2, 0), (9, 12, 1, 2)]),
    ],
)
def test_newer_batches_are_laid_over_older_ones(
    older: list[tuple[int, int, int, int]],
    newer: list[tuple[int, int, int, int]],
    start: int,
    expected: list[tuple[int, int, int, int]],
) -> None:
    found = combine([StateBatch(*b) for b in older], [StateBatch(*b) for b in newer], start)
    assert list(found) == [StateBatch(*b) for b in expected]


def test_records_delivered_often_come_alone() -> None:
    limits = InFlightLimits(4, 100)
    subject = InFlight(0, [StateBatch(0, 9, 3, RecordState.AVAILABLE)])
    request = AcquireRequest("a", 100, 100, False, 1.0)
    acquired = subject.acquire(request, [OffsetSpan(0, 9)], 0, limits)
    assert [tuple(each) for each in acquired] == [(0, 0, 4)]
    assert subject.next_fetch_offset == 1


def test_aborted_batches_are_nobodys() -> None:
    subject = InFlight(0)
    request = AcquireRequest("a", 100, 100, False, 1.0)
    acquired = subject.acquire(
        request, [OffsetSpan(0, 4), OffsetSpan(5, 9), OffsetSpan(10, 14)], 0, InFlightLimits(5, 100), [OffsetSpan(5, 9)]
    )
    assert [tuple(each) for each in acquired] == [(0, 4, 1), (10, 14, 1)]
    change = subject.acknowledge("a", [Acknowledgement(0, 4, [ACCEPT])], InFlightLimits(5, 100), 2.0)
    subject.commit(change)
    assert subject.start_offset == 10


def test_no_more_than_the_locks_that_there_are_but_what_came_back_goes_out_again() -> None:
    limits = InFlightLimits(5, 10)
    subject = InFlight(0)
    request = AcquireRequest("a", 100, 100, True, 1.0)
    assert [tuple(a) for a in subject.acquire(request, [OffsetSpan(0, 30)], 0, limits)] == [(0, 9, 1)]
    assert not subject.can_acquire(limits)
    subject.commit(subject.acknowledge("a", [Acknowledgement(3, 4, [RELEASE])], limits, 2.0))
    assert subject.can_acquire(limits)
    again = subject.acquire(request._replace(member_id="b"), [OffsetSpan(0, 30)], subject.next_fetch_offset, limits)
    assert [tuple(a) for a in again] == [(3, 4, 2)]


def test_a_record_may_not_be_acknowledged_twice_in_one_request() -> None:
    limits = InFlightLimits(5, 100)
    subject = InFlight(0)
    subject.acquire(AcquireRequest("a", 10, 10, True, 1.0), [OffsetSpan(0, 9)], 0, limits)
    rows = [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(4, 6, [RELEASE])]
    with pytest.raises(KafkaError) as raised:
        subject.acknowledge("a", rows, limits, 2.0)
    assert raised.value.code is ErrorCode.INVALID_RECORD_STATE
    assert subject.complete_count == 0
