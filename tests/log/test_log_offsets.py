"""The offsets of a log alone: no sequence of changes breaks the order between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.log_offsets import LogOffsets
from ottla.log.producer_state import CompletedTxn, ProducerEntry, ProducerState


def offsets(end: int = 20, *, start: int = 0, recovery_point: int = 0) -> LogOffsets:
    return LogOffsets(ProducerState(end), log_end_offset=end, recovery_point=recovery_point, log_start_offset=start)


def with_open_transaction(first: int) -> tuple[ProducerState, LogOffsets]:
    producers = ProducerState(20)
    producers.load(7, ProducerEntry(0, txn_first_offset=first))
    return producers, LogOffsets(producers, log_end_offset=20)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["append", "watermark", "start", "truncate", "over", "flush"]), st.integers(0, 60)),
    max_size=30,
)


@given(changes=CHANGES)
def test_the_order_holds_after_every_change(changes: list[tuple[str, int]]) -> None:
    log = offsets(0)
    for change, offset in changes:
        if change == "append":
            log.log_end_offset += offset
        elif change == "watermark":
            log.advance_high_watermark(offset)
        elif change == "start" and log.log_start_offset < offset <= log.high_watermark:
            log.advance_log_start_offset(offset)
        elif change == "truncate" and offset < log.log_end_offset:
            log.truncate_to(offset)
        elif change == "over":
            log.start_over_at(offset, offset)
        elif change == "flush":
            log.flushed(log.log_end_offset, log.generation)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert 0 <= log.recovery_point <= log.log_end_offset


def test_the_high_watermark_stays_within_the_log() -> None:
    log = offsets(20, start=5)
    assert log.advance_high_watermark(99)
    assert log.high_watermark == 20
    assert not log.advance_high_watermark(50)
    assert log.advance_high_watermark(0)
    assert log.high_watermark == 5


def test_an_open_transaction_holds_the_last_stable_offset_back() -> None:
    producers, log = with_open_transaction(8)
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6
    log.advance_high_watermark(20)
    assert log.last_stable_offset == 8
    producers.complete(CompletedTxn(7, 8, 15, aborted=False))
    log.advance_high_watermark(15)
    assert log.last_stable_offset == 8, "the marker is not replicated yet"
    log.advance_high_watermark(16)
    assert (log.last_stable_offset, log.first_unstable_offset) == (16, -1)


def test_the_log_start_passes_an_open_transaction() -> None:
    _, log = with_open_transaction(8)
    log.advance_high_watermark(20)
    log.advance_log_start_offset(12)
    assert log.last_stable_offset == 12


def test_a_truncation_lowers_every_offset_above_it() -> None:
    log = offsets(20, recovery_point=18)
    log.advance_high_watermark(15)
    log.cleaned_up_to = 12
    log.truncate_to(10)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point, log.cleaned_up_to) == (10, 10, 10, 10)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_sync_from_before_a_truncation_moves_nothing(truncated: bool) -> None:
    log = offsets(20)
    generation = log.generation
    if truncated:
        log.truncate_to(10)
        log.log_end_offset = 20
    log.flushed(20, generation)
    assert log.recovery_point == (0 if truncated else 20)


def test_an_older_sync_that_ends_late_lowers_nothing() -> None:
    log = offsets(20)
    log.flushed(20, log.generation)
    log.flushed(10, log.generation)
    assert log.recovery_point == 20
