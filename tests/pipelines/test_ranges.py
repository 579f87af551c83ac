"""Options and offset ranges: pure, no Spark session and no broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.pipelines.options import read_options
from ottla.pipelines.ranges import OffsetRange, from_json, limited, split, to_json
from ottla.tables.topics import TableError

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
RANGES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 5000)).map(lambda one: (one[0], one[0] + one[1])), max_size=8
).map(lambda found: [OffsetRange("t", n, low, high) for n, (low, high) in enumerate(found)])


@given(RANGES, st.integers(1, 40), st.integers(1, 700) | st.none())
def test_split_ranges_hold_every_offset_once_and_are_enough(ranges, least, most):
    pieces = split(ranges, least, most)
    assert sum(one.size for one in pieces) == sum(one.size for one in ranges)
    for whole in ranges:
        mine = sorted((one.start, one.end) for one in pieces if one.partition == whole.partition)
        assert all(low[1] == high[0] for low, high in pairwise(mine))
    if sum(one.size for one in ranges) >= least * 2 * max(1, len(ranges)):
        assert len(pieces) >= least
    if most:
        assert all(one.size <= most for one in pieces)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), min_size=1), st.integers(1, 5000))
def test_a_limit_is_kept_and_moves_every_partition(sizes, most):
    start = {TopicPartition("t", n): 7 for n in sizes}
    end = {TopicPartition("t", n): 7 + size for n, size in sizes.items()}
    found = limited(start, end, most)
    # As Spark's source shares it out: a partition whose share is less than one record moves by one all the same.
    total = sum(sizes.values())
    small = sum(1 for size in sizes.values() if 0 < most * size < total)
    assert sum(found[p] - start[p] for p in found) <= most + small
    assert all(found[p] > start[p] for p in found if end[p] > start[p])
    assert all(found[p] <= end[p] for p in found)


def test_offsets_as_spark_keeps_them():
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 0): 3}
    assert to_json(offsets) == {"a": {"0": 3}, "b": {"1": 5}}
    assert from_json(to_json(offsets)) == offsets


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
        ({**SERVERS}, "exactly one of"),
        ({**SERVERS, "subscribe": "t", "assign": '{"t":[0]}'}, "exactly one of"),
        ({**SERVERS, "subscribe": " , "}, "names no topic"),
        ({**SERVERS, "subscribe": "t", "startingOffsets": "latest"}, "no meaning in a batch"),
        ({**SERVERS, "subscribe": "t", "endingOffsets": "earliest"}, "no meaning"),
        ({**SERVERS, "subscribe": "t", "startingOffsets": '{"t":'}, "startingOffsets"),
        ({**SERVERS, "subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "-2"),
        ({**SERVERS, "subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, "no meaning in a batch"),
        ({**SERVERS, "subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, "no meaning"),
        ({**SERVERS, "subscribe": "t", "startingTimestamp": "noon"}, "milliseconds"),
        ({**SERVERS, "subscribe": "t", "startingTimestamp": "-1"}, "milliseconds from 0"),
        ({**SERVERS, "subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "milliseconds from 0"),
        ({**SERVERS, "assign": "[1]"}, "assign"),
        ({**SERVERS, "subscribe": "t", "minPartitions": "0"}, "minpartitions"),
        ({**SERVERS, "subscribe": "t", "failOnDataLoss": "maybe"}, "failondataloss"),
        ({**SERVERS, "subscribe": "t", "kafka.auto.offset.reset": "latest"}, "startingOffsets"),
    ],
)
def test_wrong_options_are_one_clear_error(given_options, words):
    with pytest.raises(TableError, match=words):
        read_options(given_options, streaming=False)


def test_ending_offsets_have_no_meaning_in_a_stream():
    with pytest.raises(TableError, match="stream"):
        read_options({**SERVERS, "subscribe": "t", "endingOffsets": "latest"}, streaming=True)
