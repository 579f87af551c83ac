"""Options and offset ranges: pure, no Spark session and no broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.logs import LogIdentity
from ottla.pipelines.options import read_options
from ottla.pipelines.positions import Positions
from ottla.pipelines.ranges import OffsetRange, check_bounds, limited, split

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
    positions = Positions(
        offsets=offsets, topic_ids={"a": "id"}, leader_epochs={TopicPartition("b", 1): 4}, split=(None, 7)
    )
    assert positions.to_json() == {
        "a": {"0": 3},
        "b": {"1": 5},
        "@ottla": {"version": 1, "topics": {"a": {"id": "id"}, "b": {"epochs": {"1": 4}}}, "split": [None, 7]},
    }
    assert Positions.from_json(positions.to_json()) == positions


def test_positions_of_the_version_before_and_of_a_later_version():
    assert Positions.from_json({"a": {"0": 3}}) == Positions(offsets={TopicPartition("a", 0): 3})
    with pytest.raises(UserError, match="positions of version 2"):
        Positions.from_json({"a": {"0": 3}, "@ottla": {"version": 2}})


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
    with pytest.raises(UserError, match=words):
        read_options(given_options, streaming=False)


def test_ending_offsets_have_no_meaning_in_a_stream():
    with pytest.raises(UserError, match="stream"):
        read_options({**SERVERS, "subscribe": "t", "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"minOffsetsPerTrigger": "500", "maxOffsetsPerTrigger": "400"}, "larger than maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "few"}, "minoffsetspertrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"maxTriggerDelay": "²s"}, "maxTriggerDelay"),
    ],
)
def test_wrong_limits_of_a_trigger_are_one_clear_error(given_options, words):
    with pytest.raises(UserError, match=words):
        read_options({**SERVERS, "subscribe": "t", **given_options}, streaming=True)


def test_times_are_written_as_spark_writes_them():
    for text, expected in {"15m": 900_000, "2MIN": 120_000, "30s": 30_000, "40": 40, " 1 h": 3_600_000}.items():
        options = read_options({**SERVERS, "subscribe": "t", "maxTriggerDelay": text}, streaming=True)
        assert options.max_trigger_delay_ms == expected


class TwoPartitions:
    """A log that grows when told."""

    def __init__(self) -> None:
        self.ends = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}

    def partitions(self, _options):
        return list(self.ends)

    def earliest(self, partitions):
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions):
        return {partition: self.ends[partition] for partition in partitions}

    def identities(self, partitions):
        return {partition: LogIdentity("id", 0) for partition in partitions}


def trigger(monkeypatch, **options):
    """A stream over `TwoPartitions`, and a function that asks for the next batch at a time: how many offsets it has."""
    from ottla.pipelines import reader

    log = TwoPartitions()
    monkeypatch.setattr(reader, "open_log", lambda _options: log)
    stream = reader.StreamReader(read_options({**SERVERS, "subscribe": "t", **options}, streaming=True))
    place = stream.initialOffset()

    def ask(second: float, *ends: int) -> int:
        nonlocal place
        log.ends.update(zip(log.ends, ends, strict=False))
        monkeypatch.setattr(reader.time, "monotonic", lambda: 1000.0 + second)
        before, place = place, stream.latestOffset(place, stream.getDefaultReadLimit())
        begun = Positions.from_json(before).offsets
        return sum(offset - begun[partition] for partition, offset in Positions.from_json(place).offsets.items())

    return ask, stream


def test_a_small_batch_waits_for_its_least_size_or_the_longest_delay(monkeypatch):
    """As Spark's own source: the first batch goes at once, and each that goes starts the delay again, empty ones too."""
    ask, _ = trigger(monkeypatch, minOffsetsPerTrigger="100", maxTriggerDelay="60s")
    assert ask(0, 3, 4) == 7
    assert ask(1, 50, 50) == 0
    assert ask(2, 60, 46) == 0  # 99 wait
    assert ask(3, 60, 47) == 100
    assert ask(62, 61, 47) == 0
    assert ask(63, 61, 47) == 1
    assert ask(123, 61, 47) == 0  # nothing was there, but the delay starts again
    assert ask(124, 62, 47) == 0
    assert ask(183, 62, 47) == 1


def test_least_and_most_together(monkeypatch):
    ask, _ = trigger(monkeypatch, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20", maxTriggerDelay="60s")
    assert ask(0, 100, 100) == 20
    assert [ask(n) for n in range(1, 10)] == [20] * 9
    assert ask(11, 104, 105) == 0
    assert ask(12, 105, 105) == 10


def test_what_is_available_now_does_not_wait(monkeypatch):
    ask, stream = trigger(monkeypatch, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="11")
    ask(0)
    monkeypatch.setattr(stream.log, "ends", {TopicPartition("t", 0): 6, TopicPartition("t", 1): 7})
    stream.prepareForTriggerAvailableNow()
    assert [ask(1), ask(2), ask(3)] == [10, 3, 0]


def bounds_checked(start, end, **given_options):
    options = read_options({**SERVERS, "subscribe": "t", **given_options}, streaming=False)
    log = TwoPartitions()
    log.ends = dict.fromkeys(log.ends, 5)
    partition = TopicPartition("t", 0)
    return check_bounds(log, options, {partition: start}, {partition: end})


def test_only_offsets_and_times_of_an_option_are_compared_with_the_log():
    """The log itself has named what `earliest` and `latest` mean."""
    words = bounds_checked(0, 9, startingOffsets="earliest", endingOffsets="latest")
    assert words == ({TopicPartition("t", 0): 0}, {TopicPartition("t", 0): 9})
    with pytest.raises(UserError, match="were asked for"):
        bounds_checked(0, 9, startingOffsets="earliest", endingOffsets='{"t": {"0": 9, "1": 5}}')
