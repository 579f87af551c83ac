"""Requests that no client would send, made up by Hypothesis: topics and partitions twice or nowhere, numbers at the ends of
their range, any version, batches that are odd.

A step is plain data: what is asked, at which version (a part of the API's range), about which topics. The first two topics
exist at the beginning; the others never do, or cannot.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ottla.protocol.generated.index import APIS
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.interop.differential.batches import T0, batch
from tests.interop.differential.odd_batches import INT_MAX, LONG_MAX, OddBatch, odd_batches, old_message
from tests.interop.differential.odd_changes import (
    FIRST_VERSIONS,
    LAST_VERSIONS,
    MORE_CHANGES,
    MORE_QUESTIONS,
    after_session,
)
from tests.interop.differential.odd_questions import CHANGES, QUESTIONS, Asked, known_id
from tests.interop.differential.pair import Pair, Side

_QUESTIONS = QUESTIONS | MORE_QUESTIONS
_CHANGES = CHANGES | MORE_CHANGES
PRODUCE = 0
BY_ID = 13


class Ask(NamedTuple):
    kind: str
    at: float
    """Which of the API's versions: 0 is the first, 1 the last."""
    topics: list[tuple[int, list[tuple[int, int]]]]
    """A topic's number, its partitions and a number (an offset, a time, an epoch ...) for each."""
    options: tuple[int, int, int]


class Produce(NamedTuple):
    at: float
    entries: list[tuple[tuple[int, int], OddBatch | bytes]]
    acks: int
    timeout_ms: int


class Sequence(NamedTuple):
    """A batch of an idempotent producer."""

    at: float
    partition: int
    sequence: int
    epoch: int
    count: int
    producer: int


Step = Ask | Produce | Sequence

_at = st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.9, 1.0, 1.0])
_topic = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, 3, 4])
_partition = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, -1, INT_MAX, -INT_MAX - 1])
_number = st.one_of(
    st.integers(-8, 12), st.integers(T0 - 20, T0 + 40), st.sampled_from([LONG_MAX, -LONG_MAX - 1, INT_MAX, -INT_MAX - 1, LONG_MAX - 1])
)  # fmt: skip
_about = st.lists(st.tuples(_topic, st.lists(st.tuples(_partition, _number), max_size=4)), max_size=3)
_option = st.one_of(st.integers(-3, 4), st.sampled_from([-1, 0, 1, 100, 1 << 20, INT_MAX, -INT_MAX - 1]))
_ask = st.builds(
    Ask, st.sampled_from(sorted([*_QUESTIONS, *_CHANGES])), _at, _about, st.tuples(_option, _option, _option)
)
_old = st.builds(
    old_message, st.integers(0, 1), st.binary(max_size=9), codec=st.sampled_from([0, 0, 1, 9]), broken=st.booleans()
)
_good = st.builds(batch, st.binary(max_size=60), st.binary(max_size=9), compression=st.integers(0, 4))
_records = st.one_of(
    _good, odd_batches, odd_batches, odd_batches, _old, st.tuples(_good, _good).map(b"".join), _good.map(lambda b: b[:-1]),
    st.just(b""), st.just(bytes(61)), _good.map(lambda b: b + b"\0" * 20),
)  # fmt: skip
_place = st.tuples(_topic, _partition)
_produce = st.builds(
    Produce,
    _at,
    st.lists(st.tuples(_place, _records), min_size=1, max_size=3, unique_by=lambda entry: entry[0]),
    st.sampled_from([-1, -1, -1, 1, 1, 0, 2, -2, 32767]),
    st.sampled_from([5000, 5000, 0, -1]),
)
_sequence = st.builds(
    Sequence,
    _at,
    st.sampled_from([0, 0, 0, 1]),
    st.integers(-2, 6) | st.sampled_from([INT_MAX, INT_MAX - 1]),
    st.sampled_from([0, 0, 0, 0, 1, 2, -1, -2, 32767]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 0, 0, 1, -1]),
)
odd_sequences: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(_produce, _produce, _ask, _ask, _ask, _sequence, _sequence), min_size=8, max_size=30
)


def run(pair: Pair, steps: list[Step], configs: dict[str, str]) -> None:
    names = [pair.create(pair.name("first"), 2, **configs), pair.create(pair.name("second"), 1)]
    names += [pair.name("missing"), "", "a b"]
    for number in range(2):
        pair.send(InitProducerIdRequest(None, 0), 4)
        pair.remember(f"producer{number}", lambda answer: answer.producer_id)
    for step in steps:
        if isinstance(step, Ask):
            _ask_both(pair, step, names)
        elif isinstance(step, Produce):
            _produce_to_both(pair, step, names)
        else:
            _continue(pair, step, names[0])


def version_of(key: int, at: float) -> int:
    entry = APIS[key]
    first, last = entry.min_version, entry.max_version - entry.latest_unstable
    return first + round((last - first) * at)


def _ask_both(pair: Pair, step: Ask, names: list[str]) -> None:
    key, build = (_QUESTIONS | _CHANGES)[step.kind]
    version = max(min(version_of(key, step.at), LAST_VERSIONS.get(step.kind, 99)), FIRST_VERSIONS.get(step.kind, 0))
    asked = Asked(version, [(names[number], items) for number, items in step.topics], step.options)
    pair.send(lambda side: build(side, asked), version)
    if step.kind == "session":
        after_session(pair)
    if step.kind in _CHANGES:
        pair.settle()


def _produce_to_both(pair: Pair, step: Produce, names: list[str]) -> None:
    version = version_of(PRODUCE, step.at)

    def build(side: Side) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        seen = set()
        for (number, partition), records in step.entries:
            name = names[number]
            where = {"topic_id": known_id(side, name)} if version >= BY_ID else {"name": name}
            entry = topics.setdefault(name, TopicProduceData(**where, partition_data=[]))
            if (*where.values(), partition) in seen:  # several have the unknown id
                continue
            seen.add((*where.values(), partition))
            data = records.encoded() if isinstance(records, OddBatch) else records
            entry.partition_data.append(PartitionProduceData(partition, data))
        return ProduceRequest(None, step.acks, step.timeout_ms, list(topics.values()))

    if step.acks:
        pair.send(build, version)
    else:
        pair.send_unanswered(build, version)  # an error closes the connection


def _continue(pair: Pair, step: Sequence, name: str) -> None:
    version = version_of(PRODUCE, step.at)

    def build(side: Side) -> ProduceRequest:
        producer = side.memory[f"producer{step.producer}"] if step.producer >= 0 else 987_654_321
        data = batch(*[b"i"] * step.count, producer_id=producer, producer_epoch=step.epoch, base_sequence=step.sequence)
        where = {"topic_id": known_id(side, name)} if version >= BY_ID else {"name": name}
        return ProduceRequest(None, -1, 5_000, [TopicProduceData(**where, partition_data=[PartitionProduceData(step.partition, data)])])  # fmt: skip

    pair.send(build, version)
