"""Sequences of requests that Hypothesis makes up: two topics, some partitions, records, offsets, settings.

A step is plain data, so that a failing example can be read and kept; `run` says it to both servers. Topics are new for
each example, whatever they were called before.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from hypothesis import strategies as st

from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.interop.differential.batches import T0, batch, produce
from tests.interop.differential.pair import Pair, Side

TOPIC = 2
CONFIGS = st.sampled_from(
    [
        ("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("max.message.bytes", "200"), ("max.message.bytes", "x"),
        ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"), ("compression.type", "lz4"),
        ("compression.type", "producer"), ("min.insync.replicas", "2"), ("segment.bytes", "1048576"), ("retention.ms", "-5"),
    ]
)  # fmt: skip


class Create(NamedTuple):
    topic: int
    partitions: int
    config: tuple[str, str] | None


class Produce(NamedTuple):
    topic: int
    partition: int
    values: list[bytes | None]
    codec: int
    keyed: bool
    acks: int
    at: int


class Idempotent(NamedTuple):
    topic: int
    partition: int
    sequence: int
    epoch: int
    records: int


class Fetch(NamedTuple):
    topic: int
    partition: int
    offset: int
    max_bytes: int
    isolation: int


class ListOffsets(NamedTuple):
    topic: int
    partition: int
    timestamp: int


class DeleteRecords(NamedTuple):
    topic: int
    partition: int
    offset: int


class Configure(NamedTuple):
    topic: int
    config: tuple[str, str]


class Grow(NamedTuple):
    topic: int
    partitions: int


class Delete(NamedTuple):
    topic: int


class Look(NamedTuple):
    topic: int


Step = Create | Produce | Idempotent | Fetch | ListOffsets | DeleteRecords | Configure | Grow | Delete | Look

# Mostly the same topic and partition: what happens there depends on what happened before.
_topic = st.sampled_from([0, 0, 0, 1])
_partition = st.sampled_from([0, 0, 0, 1, 2])
_offset = st.integers(-1, 8)
_values = st.lists(st.none() | st.binary(max_size=60), min_size=1, max_size=3)
_produce = st.builds(
    Produce,
    _topic,
    _partition,
    _values,
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from([-1, -1, 1, 3]),
    st.integers(0, 5),
)
_idempotent = st.builds(Idempotent, _topic, _partition, st.integers(-1, 6), st.integers(-1, 2), st.integers(1, 3))
_steps = st.one_of(
    st.builds(Create, _topic, st.integers(0, 3), st.none() | CONFIGS),
    _produce,
    _produce,
    _idempotent,
    _idempotent,
    st.builds(Fetch, _topic, _partition, _offset, st.sampled_from([0, 1, 1 << 20]), st.integers(0, 1)),
    st.builds(ListOffsets, _topic, _partition, st.integers(-5, 0) | st.integers(T0 - 1, T0 + 60)),
    st.builds(DeleteRecords, _topic, _partition, _offset),
    st.builds(Configure, _topic, CONFIGS),
    st.builds(Grow, _topic, st.integers(1, 3)),
    st.builds(Delete, _topic),
    st.builds(Look, _topic),
)
_first = st.builds(Create, st.just(0), st.integers(1, 3), st.none() | CONFIGS)
sequences: st.SearchStrategy[list[Step]] = st.tuples(_first, st.lists(_steps, min_size=10, max_size=40)).map(
    lambda parts: [parts[0], *parts[1]]
)


def run(pair: Pair, steps: list[Step]) -> None:
    names = [pair.name("zero"), pair.name("one")]
    pair.send(InitProducerIdRequest(None, 0), 4)
    pair.remember("producer", lambda answer: answer.producer_id)
    for step in steps:
        _run(pair, step, names[step.topic])


def _run(pair: Pair, step: Step, name: str) -> None:
    match step:
        case Create(_, partitions, config):
            configs = [] if config is None else [CreatableTopicConfig(*config)]
            answer = pair.send(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], configs)], 10_000), 7)
            if all(each.topics[0].error_code == 0 for each in answer):
                pair.await_leaders(name, partitions)
        case Produce(_, partition, values, codec, keyed, acks, at):
            data = batch(*values, key=b"k" if keyed else None, compression=codec, at=T0 + at * 10)
            pair.send(produce(name, data, version=12, partition=partition, acks=acks), 12)
        case Idempotent(_, partition, sequence, epoch, count):
            pair.send(partial(_idempotent_batch, name, partition, sequence, epoch, count), 12)
        case Fetch(_, partition, offset, max_bytes, isolation):
            wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            topics = [FetchTopic(name, partitions=[wanted])]
            pair.send(FetchRequest(max_wait_ms=0, isolation_level=isolation, topics=topics), 12)
        case ListOffsets(_, partition, timestamp):
            asked = [ListOffsetsTopic(name, [ListOffsetsPartition(partition, -1, timestamp)])]
            pair.send(ListOffsetsRequest(-1, 0, asked, 1000), 9)
        case DeleteRecords(_, partition, offset):
            entry = DeleteRecordsTopic(name, [DeleteRecordsPartition(partition, offset)])
            pair.send(DeleteRecordsRequest([entry], 5_000), 2)
        case Configure(_, (key, value)):
            resource = AlterConfigsResource(TOPIC, name, [AlterableConfig(key, 0, value)])
            pair.send(IncrementalAlterConfigsRequest([resource]), 1)
            pair.settle()
        case Grow(_, count):
            answer = pair.send(CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], 10_000), 3)
            if all(each.results[0].error_code == 0 for each in answer):
                pair.await_leaders(name, count)
        case Delete(_):
            pair.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            pair.await_gone(name)
        case Look(_):
            pair.send(MetadataRequest([MetadataRequestTopic(name=name)], False), 12)
            pair.send(DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, None)], True), 4)


def _idempotent_batch(name: str, partition: int, sequence: int, epoch: int, count: int, side: Side) -> ProduceRequest:
    fields = {"producer_id": side.memory["producer"], "producer_epoch": epoch, "base_sequence": sequence}
    data = PartitionProduceData(partition, batch(*[b"i"] * count, **fields))
    return ProduceRequest(None, -1, 5_000, [TopicProduceData(name, partition_data=[data])])
