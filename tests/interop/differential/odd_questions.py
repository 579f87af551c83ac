"""How `odd_requests` asks: a function for each kind of request, which puts the numbers where they fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.model.ids import Uuid
from ottla.protocol.generated import alter_partition_reassignments_request as alter
from ottla.protocol.generated import create_partitions_request as grow
from ottla.protocol.generated import create_topics_request as create
from ottla.protocol.generated import delete_records_request as records
from ottla.protocol.generated import delete_topics_request as delete
from ottla.protocol.generated import describe_configs_request as configs
from ottla.protocol.generated import describe_producers_request as producers
from ottla.protocol.generated import describe_topic_partitions_request as partitions
from ottla.protocol.generated import elect_leaders_request as elect
from ottla.protocol.generated import fetch_request as fetch
from ottla.protocol.generated import init_producer_id_request as init
from ottla.protocol.generated import list_offsets_request as offsets
from ottla.protocol.generated import list_partition_reassignments_request as moves
from ottla.protocol.generated import metadata_request as metadata
from ottla.protocol.generated import offset_for_leader_epoch_request as epochs
from ottla.protocol.primitives import Message
from tests.interop.differential.pair import Side

INT_MAX = 2**31 - 1
UNKNOWN_ID = Uuid(bytes(range(16)))
_KEYS = (None, [], ["retention.ms", "no.such", "retention.ms"], ["cleanup.policy"])
_REPLICAS = (None, [1], [1, 1], [], [5], [-1])
_SETTINGS = ([], [("retention.ms", "5")], [("retention.ms", None)], [("no.such", "1")], [("retention.ms", "1"), ("retention.ms", "2")], [("segment.ms", "x"), ("flush.ms", "-2")])  # fmt: skip


class Asked(NamedTuple):
    version: int
    topics: list[tuple[str, list[tuple[int, int]]]]
    options: tuple[int, int, int]


Build = Callable[[Side, Asked], Message]


def known_id(side: Side, name: str) -> Uuid:
    """The topic's id, or one that no topic has: of the zero id Apache Kafka says UNKNOWN_SERVER_ERROR."""
    found = side.topic_id(name) if name and " " not in name else UNKNOWN_ID
    return found if any(found) else UNKNOWN_ID


def _int(number: int) -> int:
    return max(-INT_MAX - 1, min(number, INT_MAX))


def _short(number: int) -> int:
    return max(-32768, min(number, 32767))


def _byte(number: int) -> int:
    return max(-128, min(number, 127))


def _fetch(side: Side, asked: Asked) -> Message:
    version, (max_bytes, isolation, epoch) = asked.version, asked.options
    topics = []
    for name, items in asked.topics:
        where = {"topic_id": known_id(side, name)} if version >= 13 else {"topic": name}
        wanted = [
            fetch.FetchPartition(
                partition, epoch if version >= 9 else -1, number, _int(number) % 3 - 1 if version >= 12 else -1,
                partition_max_bytes=max_bytes if number % 2 else 1 << 20,
            )
            for partition, number in items
        ]  # fmt: skip
        topics.append(fetch.FetchTopic(**where, partitions=wanted))
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=epoch, max_bytes=1 << 20 if epoch % 2 else max_bytes, isolation_level=_byte(isolation),
        session_epoch=0 if version >= 7 and epoch == 0 else -1, topics=topics,
    )  # fmt: skip


def _list_offsets(_side: Side, asked: Asked) -> Message:
    version, (epoch, isolation, replica) = asked.version, asked.options
    topics = [
        offsets.ListOffsetsTopic(
            name, [offsets.ListOffsetsPartition(p, epoch if version >= 4 else -1, number) for p, number in items]
        )
        for name, items in asked.topics
    ]
    return offsets.ListOffsetsRequest(
        -2 if replica == 2 else -1, _byte(isolation) if version >= 2 else 0, topics, 1000 if version >= 10 else 0
    )


def _delete_records(_side: Side, asked: Asked) -> Message:
    topics = [
        records.DeleteRecordsTopic(name, [records.DeleteRecordsPartition(*item) for item in items])
        for name, items in asked.topics
    ]
    return records.DeleteRecordsRequest(topics, 5_000)


def _epoch_end(_side: Side, asked: Asked) -> Message:
    current, _, replica = asked.options
    topics = [
        epochs.OffsetForLeaderTopic(
            name, [epochs.OffsetForLeaderPartition(p, current, _int(number)) for p, number in items]
        )
        for name, items in asked.topics
    ]
    return epochs.OffsetForLeaderEpochRequest((replica if replica < 0 else -1) if asked.version >= 3 else -2, topics)


def _describe_producers(_side: Side, asked: Asked) -> Message:
    return producers.DescribeProducersRequest(
        [producers.TopicRequest(name, [p for p, _ in items]) for name, items in asked.topics]
    )


def _metadata(side: Side, asked: Asked) -> Message:
    by_id = asked.version >= 12 and asked.options[0] % 2
    topics = [
        metadata.MetadataRequestTopic(known_id(side, name), None) if by_id else metadata.MetadataRequestTopic(name=name)
        for name, _ in asked.topics
    ]
    return metadata.MetadataRequest(topics, False)


def _describe_topic_partitions(_side: Side, asked: Asked) -> Message:
    limit, where, first = asked.options
    names = [name for name, _ in asked.topics]
    # Apache Kafka adds the limit to the cursor's partition, and an overflow makes it answer with a cursor below zero.
    cursor = partitions.Cursor(names[where % len(names)], min(first, 1000)) if names and where > 0 else None
    return partitions.DescribeTopicPartitionsRequest([partitions.TopicRequest(name) for name in names], limit, cursor)


def _describe_configs(_side: Side, asked: Asked) -> Message:
    kind, keys, flags = asked.options
    resources = [
        configs.DescribeConfigsResource(2 if kind >= 0 else _byte(kind), name, _KEYS[keys % len(_KEYS)])
        for name, _ in asked.topics
    ]
    return configs.DescribeConfigsRequest(resources, bool(flags % 2))


def _elect_leaders(_side: Side, asked: Asked) -> Message:
    kind = asked.options[0] % 2 if asked.version >= 1 else 0
    topics = [elect.TopicPartitions(name, [p for p, _ in items]) for name, items in asked.topics]
    return elect.ElectLeadersRequest(kind, topics, 5_000)


def _list_reassignments(_side: Side, asked: Asked) -> Message:
    topics = [moves.ListPartitionReassignmentsTopics(name, [p for p, _ in items]) for name, items in asked.topics]
    return moves.ListPartitionReassignmentsRequest(5_000, topics if asked.options[0] else None)


def _init_producer(_side: Side, asked: Asked) -> Message:
    timeout, producer, epoch = asked.options
    ids = (producer, _short(epoch)) if asked.version >= 3 else (-1, -1)
    return init.InitProducerIdRequest("" if timeout == 3 else None, timeout, *ids)


def _reassign(_side: Side, asked: Asked) -> Message:
    topics = [
        alter.ReassignableTopic(
            name, [alter.ReassignablePartition(p, _REPLICAS[number % len(_REPLICAS)]) for p, number in items]
        )
        for name, items in asked.topics
    ]
    return alter.AlterPartitionReassignmentsRequest(5_000, True, topics)


def _create_partitions(_side: Side, asked: Asked) -> Message:
    count, assigned, dry = asked.options
    assignments = [grow.CreatePartitionsAssignment([1])] * assigned if 0 < assigned < 4 else None
    topics = [grow.CreatePartitionsTopic(name, min(count, 100), assignments) for name, _ in asked.topics]
    return grow.CreatePartitionsRequest(topics, 5_000, dry != 1)


def _create_topics(_side: Side, asked: Asked) -> Message:
    count, factor, settings = asked.options
    entries = [create.CreatableTopicConfig(*each) for each in _SETTINGS[settings % len(_SETTINGS)]]
    topics = []
    for name, items in asked.topics:
        assignments = [create.CreatableReplicaAssignment(p, _REPLICAS[number % 5 + 1] or []) for p, number in items]
        numbers = (-1, -1) if assignments and count % 2 else (min(count, 10), _short(factor))
        topics.append(create.CreatableTopic(name, *numbers, assignments, entries))
    return create.CreateTopicsRequest(topics, 5_000, True)


def _delete_topics(side: Side, asked: Asked) -> Message:
    """Only what is not there, or what is refused for being named twice."""
    names = [name for name, _ in asked.topics]
    names = [name for name in names if name == "" or " " in name or name.endswith("missing") or names.count(name) > 1]
    if asked.version < 6:
        names = [name for name in names if names.count(name) == 1 and not name.endswith(("first", "second"))]
        return delete.DeleteTopicsRequest(topic_names=names, timeout_ms=5_000)
    states = [delete.DeleteTopicState(name) for name in names]
    if asked.options[0] % 2:
        states += [delete.DeleteTopicState(None, UNKNOWN_ID)] * (asked.options[1] % 3)
    return delete.DeleteTopicsRequest(states, timeout_ms=5_000)


QUESTIONS: dict[str, tuple[int, Build]] = {
    "fetch": (1, _fetch),
    "list_offsets": (2, _list_offsets),
    "metadata": (3, _metadata),
    "create_topics": (19, _create_topics),
    "delete_topics": (20, _delete_topics),
    "init_producer": (22, _init_producer),
    "epoch_end": (23, _epoch_end),
    "describe_configs": (32, _describe_configs),
    "list_reassignments": (46, _list_reassignments),
    "describe_producers": (61, _describe_producers),
    "describe_topic_partitions": (75, _describe_topic_partitions),
}
CHANGES: dict[str, tuple[int, Build]] = {
    "delete_records": (21, _delete_records),
    "create_partitions": (37, _create_partitions),
    "elect_leaders": (43, _elect_leaders),
    "reassign": (45, _reassign),
}
"""What may change something: then both servers get a moment to see it everywhere."""
