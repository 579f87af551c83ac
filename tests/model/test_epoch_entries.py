"""The entries of leader epochs against a list that is searched from one end to the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.epoch_entries import EpochEntries

ENTRIES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=6).map(
    lambda steps: [
        (sum(epoch for epoch, _ in steps[: number + 1]), sum(offset for _, offset in steps[: number + 1]))
        for number in range(len(steps))
    ]
)


def rising(entries: EpochEntries) -> bool:
    pairs = entries.as_list()
    return all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))


@given(pairs=ENTRIES, epoch=st.integers(0, 30), offset=st.integers(0, 40))
def test_lookups_agree_with_a_search(pairs: list[tuple[int, int]], epoch: int, offset: int) -> None:
    entries = EpochEntries(pairs)
    assert entries.epoch_for_offset(offset) == max([e for e, start in pairs if start <= offset], default=-1)
    assert entries.floor(epoch) == (
        max([e for e, _ in pairs if e <= epoch], default=None),
        min([start for e, start in pairs if e > epoch], default=None),
    )


@given(
    pairs=ENTRIES, changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 40)), max_size=8)
)
def test_changes_keep_the_order_and_report_themselves(
    pairs: list[tuple[int, int]], changes: list[tuple[int, int, int]]
) -> None:
    entries = EpochEntries(pairs)
    for kind, epoch, offset in changes:
        before = entries.as_list()
        if kind == 0:
            changed = entries.assign(epoch, offset)
            assert entries.latest_epoch == epoch
        elif kind == 1:
            changed = entries.truncate_from_end(offset)
            assert entries.as_list() == [pair for pair in before if pair[1] < offset]
        elif kind == 2:
            changed = entries.truncate_from_start(offset)
            assert entries.epoch_for_offset(offset) == EpochEntries(before).epoch_for_offset(offset)
        else:
            changed = entries.correct(epoch, offset)
            assert entries.epoch_for_offset(offset) == epoch
        assert changed or entries.as_list() == before
        assert rising(entries)
        assert entries.latest_epoch == max([epoch for epoch, _ in entries.as_list()], default=-1)


def test_replace_reports_a_difference() -> None:
    entries = EpochEntries([(1, 0)])
    assert not entries.replace([(1, 0)])
    assert entries.replace([])
    assert entries.latest_epoch == -1


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_nothing_below_zero(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        EpochEntries().assign(epoch, offset)
