"""Longer sequences that Hypothesis makes up around one log: transactions, fetch sessions, settings, times, versions.

Like `sequences`, whose steps it adds to: every step is plain data, and is said at a version that is drawn with it. The
second producer is transactional; what it left open stays open.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ottla.model.ids import Uuid
from ottla.protocol.generated import alter_configs_request as old
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.generated.produce_response import ProduceResponse
from tests.interop.differential.batches import T0, batch, produce
from tests.interop.differential.pair import Answers, Pair, Side
from tests.interop.differential.transactional import Producer

TOPIC = 2
BY_ID = 13
"""The version from which Produce and Fetch name topics by id."""
SET, DELETE, APPEND, SUBTRACT = range(4)
FUTURE = 4_000_000_000_000
_CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
_SETTINGS = [
    *(("compression.type", codec) for codec in _CODECS),
    ("compression.gzip.level", "9"), ("compression.zstd.level", "-5"), ("compression.lz4.level", "18"), ("compression.lz4.level", "0"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("cleanup.policy", "compact,delete"), ("cleanup.policy", ""),
    ("cleanup.policy", "delete,delete"), ("cleanup.policy", " compact , delete "),
    ("max.message.bytes", "150"), ("max.message.bytes", "90"), ("max.message.bytes", "1048588"), ("max.message.bytes", "-1"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"), ("message.timestamp.type", "logappendtime"),
    ("message.timestamp.before.max.ms", "1000"), ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("message.timestamp.after.max.ms", "9223372036854775807"), ("message.timestamp.after.max.ms", "0"),
    ("segment.bytes", "1048576"), ("segment.bytes", "14"), ("segment.ms", "1"), ("segment.jitter.ms", "10"), ("segment.index.bytes", "24"),
    ("min.insync.replicas", "2"), ("min.insync.replicas", "1"), ("retention.ms", "-1"), ("retention.bytes", "-2"),
    ("leader.replication.throttled.replicas", "0:1,1:1"), ("leader.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "x"), ("min.cleanable.dirty.ratio", "0.00"), ("min.cleanable.dirty.ratio", "1.5"),
    ("preallocate", "TRUE"), ("preallocate", "yes"), ("file.delete.delay.ms", " 5 "), ("unclean.leader.election.enable", "true"),
    ("max.compaction.lag.ms", "5"), ("min.compaction.lag.ms", "10"), ("flush.messages", "1"), ("flush.ms", "0"), ("local.retention.ms", "-2"),
    ("remote.storage.enable", "true"), ("no.such.thing", "1"), ("index.interval.bytes", "0"), ("delete.retention.ms", "-1"),
]  # fmt: skip


class Create(NamedTuple):
    partitions: int
    configs: list[tuple[str, str]]
    validate_only: bool


class Produce(NamedTuple):
    version: int
    partition: int
    values: list[bytes | None]
    key: bytes | None
    codec: int
    acks: int
    at: int


class Transaction(NamedTuple):
    what: str
    partition: int
    version: int
    count: int


class Fetch(NamedTuple):
    version: int
    partitions: list[tuple[int, int]]
    max_bytes: int
    isolation: int
    epoch: int


class Session(NamedTuple):
    version: int
    epoch: str
    partitions: list[tuple[int, int]]
    forgotten: list[int]
    isolation: int


class ListOffsets(NamedTuple):
    version: int
    partition: int
    timestamp: int
    isolation: int
    epoch: int


class EpochEnd(NamedTuple):
    version: int
    partition: int
    epoch: int
    current: int


class DeleteRecords(NamedTuple):
    version: int
    partition: int
    offset: int


class Configure(NamedTuple):
    version: int
    changes: list[tuple[tuple[str, str], int]]
    validate_only: bool


class Replace(NamedTuple):
    """AlterConfigs: what is not named goes back to its default."""

    version: int
    configs: list[tuple[str, str]]
    validate_only: bool


class Delete(NamedTuple):
    by_id: bool


class Look(NamedTuple):
    producers: bool


Step = (
    Create
    | Produce
    | Transaction
    | Fetch
    | Session
    | ListOffsets
    | EpochEnd
    | DeleteRecords
    | Configure
    | Replace
    | Delete
    | Look
)

Starts = dict[tuple[int, int], int]
"""Partition and offset -> the first offset of the batch that holds it."""
_partition = st.sampled_from([0, 0, 0, 0, 1, 2])
_offset = st.integers(-2, 12)
_setting = st.sampled_from(_SETTINGS)
_settings = st.lists(_setting, max_size=3)
_flag = st.sampled_from([False, False, False, True])
_where = st.lists(st.tuples(_partition, _offset), min_size=1, max_size=3, unique_by=lambda each: each[0])
_produce = st.builds(
    Produce,
    st.sampled_from([3, 7, 9, 12, 13]),
    _partition,
    st.lists(st.none() | st.binary(max_size=80), min_size=1, max_size=4),
    st.sampled_from([None, b"k", b"l", b""]),
    st.integers(0, 4),
    st.sampled_from([-1, -1, 1]),
    st.sampled_from([T0, T0 + 10, T0 + 25, T0 - 30, FUTURE, -1, -2]),
)
_transaction = st.builds(
    Transaction,
    st.sampled_from(["init", "add", "produce", "produce", "produce", "plain", "commit", "abort", "describe"]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([11, 12]),
    st.integers(1, 3),
)
_steps = st.one_of(
    _produce,
    _produce,
    _transaction,
    _transaction,
    _transaction,
    st.builds(Create, st.integers(1, 3), _settings, _flag),
    st.builds(
        Fetch,
        st.integers(4, 18),
        _where,
        st.sampled_from([0, 1, 100, 1 << 20]),
        st.integers(0, 1),
        st.sampled_from([-1, -1, 0, 1, -2]),
    ),
    st.builds(
        Session,
        st.integers(7, 18),
        st.sampled_from(["full", "next", "next", "next", "next", "wrong", "unknown", "close", "zero"]),
        st.lists(st.tuples(_partition, _offset), max_size=3, unique_by=lambda each: each[0]),
        st.lists(_partition, max_size=2, unique=True),
        st.integers(0, 1),
    ),
    st.builds(
        ListOffsets,
        st.integers(1, 11),
        _partition,
        st.integers(-7, 0) | st.integers(T0 - 40, T0 + 60) | st.just(FUTURE),
        st.integers(0, 1),
        st.sampled_from([-1, -1, 0, 1]),
    ),
    st.builds(EpochEnd, st.integers(2, 4), _partition, st.integers(-2, 2), st.sampled_from([-1, 0, 1])),
    st.builds(DeleteRecords, st.integers(0, 2), _partition, _offset),
    st.builds(
        Configure,
        st.integers(0, 1),
        st.lists(st.tuples(_setting, st.sampled_from([SET, SET, SET, DELETE, APPEND, SUBTRACT])), min_size=1, max_size=3),
        _flag,
    ),
    st.builds(Replace, st.integers(0, 2), _settings, _flag),
    st.builds(Delete, st.booleans()),
    st.builds(Look, st.booleans()),
)  # fmt: skip
_first = st.builds(Create, st.integers(1, 3), st.lists(_setting, max_size=1), st.just(False))
log_sequences: st.SearchStrategy[list[Step]] = st.tuples(_first, st.lists(_steps, min_size=10, max_size=40)).map(
    lambda parts: [parts[0], *parts[1]]
)


def run(pair: Pair, steps: list[Step]) -> None:
    name, producer = pair.name("log"), Producer(pair)
    producer.init()
    starts: Starts = {}
    for step in steps:
        if isinstance(step, Transaction):
            _transact(producer, step, name, starts)
        elif isinstance(step, Create | Configure | Replace | Delete):
            _change(pair, step, name)
        elif isinstance(step, DeleteRecords):  # not into a batch: see allowed.NOT_ASKED
            start = starts.get((step.partition, step.offset), step.offset)
            _say(pair, step._replace(offset=start), name)
        else:
            _say(pair, step, name, starts)
    producer.end(commit=False)


def _note(starts: Starts, partition: int, answers: Answers, count: int) -> None:
    """Where the batch begins that was just appended."""
    if isinstance(answers.reference, ProduceResponse):
        base = answers.reference.responses[0].partition_responses[0].base_offset
        starts.update({(partition, offset): base for offset in range(base, base + count)})


def _transact(producer: Producer, step: Transaction, name: str, starts: Starts) -> None:
    match step.what:
        case "init":
            producer.init()  # aborts what is open, and says to come back
            producer.settle()
        case "add":
            producer.add(3, (name, step.partition))
        case "produce":
            answers = producer.produce(name, *[b"t"] * step.count, version=step.version, partition=step.partition)
            _note(starts, step.partition, answers, step.count)
        case "plain":
            producer.produce(name, b"p", version=step.version, partition=step.partition, transactional=False)
        case "commit" | "abort":
            producer.end(3 if step.version < BY_ID - 1 else 5, commit=step.what == "commit")
        case _:
            producer.describe()


def _change(pair: Pair, step: Create | Configure | Replace | Delete, name: str) -> None:
    match step:
        case Create(partitions, configs, validate_only):
            entries = [CreatableTopicConfig(*each) for each in dict(configs).items()]
            topic = CreatableTopic(name, partitions, 1, [], entries)
            answers = pair.send(CreateTopicsRequest([topic], 10_000, validate_only), 7)
            if not validate_only and all(each.topics[0].error_code == 0 for each in answers):
                pair.await_leaders(name, partitions)
        case Configure(version, changes, validate_only):
            # One operation on each name, as Kafka wants it; the scenarios have the others.
            named = {key: (value, kind) for (key, value), kind in changes}
            entries = [AlterableConfig(k, o, None if o == DELETE else v) for k, (v, o) in named.items()]
            resource = AlterConfigsResource(TOPIC, name, entries)
            pair.send(IncrementalAlterConfigsRequest([resource], validate_only), version)
            pair.settle()
        case Replace(version, configs, validate_only):
            entries = [old.AlterableConfig(*each) for each in dict(configs).items()]
            pair.send(old.AlterConfigsRequest([old.AlterConfigsResource(TOPIC, name, entries)], validate_only), version)
            pair.settle()
        case Delete(by_id):
            if by_id:
                pair.send(
                    lambda side: DeleteTopicsRequest([DeleteTopicState(None, _id(side, name))], timeout_ms=10_000),
                    6,
                )
            else:
                pair.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            pair.await_gone(name)


def _say(
    pair: Pair,
    step: Produce | Fetch | Session | ListOffsets | EpochEnd | DeleteRecords | Look,
    name: str,
    starts: Starts | None = None,
) -> None:
    match step:
        case Produce(version, partition, values, key, codec, acks, at):
            if codec == 4 and version < 7:
                version = 7
            data = batch(*values, key=key, compression=codec, at=at)
            answers = pair.send(produce(name, data, version=version, partition=partition, acks=acks), version)
            _note({} if starts is None else starts, partition, answers, len(values))
        case Fetch(version, partitions, max_bytes, isolation, epoch):

            def fetch(side: Side) -> FetchRequest:
                wanted = [_wanted(p, o, version, epoch=epoch, max_bytes=max_bytes) for p, o in partitions]
                topics = [_topic(side, name, version, wanted)]
                return FetchRequest(max_wait_ms=0, isolation_level=isolation, topics=topics)

            pair.send(fetch, version)
        case Session():
            _session(pair, step, name)
        case ListOffsets(version, partition, timestamp, isolation, epoch):
            asked = [ListOffsetsPartition(partition, epoch if version >= 4 else -1, timestamp)]
            shown = isolation if version >= 2 else 0
            pair.send(ListOffsetsRequest(-1, shown, [ListOffsetsTopic(name, asked)], 1000), version)
        case EpochEnd(version, partition, epoch, current):
            wanted = OffsetForLeaderPartition(partition, current, epoch)
            pair.send(OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(name, [wanted])]), version)
        case DeleteRecords(version, partition, offset):
            entry = DeleteRecordsTopic(name, [DeleteRecordsPartition(partition, offset)])
            pair.send(DeleteRecordsRequest([entry], 5_000), version)
        case Look(producers):
            if producers:
                pair.send(DescribeProducersRequest([TopicRequest(name, [0, 1, 2])]), 0)
            else:
                pair.send(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None)], True), 4)


def _session(pair: Pair, step: Session, name: str) -> None:
    """A step of the one incremental session; "next" without a session makes one."""

    def build(side: Side) -> FetchRequest:
        session, epoch = side.memory.get("session", (0, 0))
        session_id, session_epoch = {
            "full": (0, 0), "next": (session, epoch), "wrong": (session, epoch + 5), "unknown": (12345, 1),
            "close": (session, -1), "zero": (session, 0),
        }[step.epoch]  # fmt: skip
        wanted = [_wanted(p, o, step.version) for p, o in step.partitions]
        topics = [_topic(side, name, step.version, wanted)] if wanted else []
        request = FetchRequest(
            max_wait_ms=0, isolation_level=step.isolation, session_id=session_id, session_epoch=session_epoch, topics=topics
        )  # fmt: skip
        asked = {p for p, _ in step.partitions}
        forgotten = [p for p in step.forgotten if p not in asked or step.version < BY_ID or any(side.topic_id(name))]
        if forgotten:  # not what it asks for by an unknown id: see allowed.NOT_ASKED
            where = {"topic_id": _id(side, name)} if step.version >= BY_ID else {"topic": name}
            request.forgotten_topics_data = [ForgottenTopic(**where, partitions=forgotten)]
        return request

    answers = pair.send(build, step.version)
    for side, answer in zip(pair.sides, answers, strict=True):
        if isinstance(answer, str) or answer.error_code or step.epoch == "close":
            side.memory["session"] = (0, 0)
        elif answer.session_id:
            _, epoch = side.memory.get("session", (0, 0))
            side.memory["session"] = (answer.session_id, epoch + 1 if step.epoch == "next" else 1)


def _wanted(partition: int, offset: int, version: int, *, epoch: int = -1, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(
        partition, epoch if version >= 9 else -1, fetch_offset=offset, partition_max_bytes=max_bytes
    )  # fmt: skip


def _topic(side: Side, name: str, version: int, wanted: list[FetchPartition]) -> FetchTopic:
    if version >= BY_ID:
        return FetchTopic(topic_id=_id(side, name), partitions=wanted)
    return FetchTopic(name, partitions=wanted)


def _id(side: Side, name: str) -> Uuid:
    """The topic's id, or one that no topic has: of the zero id Apache Kafka says UNKNOWN_SERVER_ERROR."""
    found = side.topic_id(name)
    return found if any(found) else Uuid(bytes(range(16)))
