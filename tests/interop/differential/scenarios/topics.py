"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders and the reassignments."""

from __future__ import annotations

from ottla.model.ids import Uuid
from ottla.protocol.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.generated.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.generated.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.protocol.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.interop.differential.pair import Pair
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios.metadata import INVALID_NAMES


def _assignment(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(i, each) for i, each in enumerate(replicas)]


@scenario(CreateTopicsRequest)
def create_topics(pair: Pair, version: int) -> None:
    def create(*topics: CreatableTopic, validate_only: bool = False) -> None:
        pair.send(CreateTopicsRequest(list(topics), 5_000, validate_only), version)

    create(CreatableTopic(pair.name("one"), 1, 1))
    create(CreatableTopic(pair.name("one"), 1, 1))
    create(CreatableTopic(pair.name("one"), 1, 1), validate_only=True)
    create(CreatableTopic(pair.name("dry"), 3, 1), validate_only=True)
    create(CreatableTopic(pair.name("dry"), 0, 1), validate_only=True)
    create(CreatableTopic(pair.name("defaults"), -1, -1))
    create(
        CreatableTopic(pair.name("a"), 1, 1), CreatableTopic(pair.name("b"), 0, 1), CreatableTopic(pair.name("c"), 2, 1)
    )
    create(
        CreatableTopic(pair.name("same"), 1, 1),
        CreatableTopic(pair.name("same"), 2, 1),
        CreatableTopic(pair.name("not"), 1, 1),
    )
    for partitions, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32767), (10_001, 1), (2147483647, 1)):
        create(CreatableTopic(pair.name(f"p{partitions}r{factor}"), partitions, factor))
    for name in (*INVALID_NAMES, "__cluster_metadata"):
        create(CreatableTopic(name, 1, 1))
    create(CreatableTopic(pair.name("col.lide"), 1, 1))
    create(CreatableTopic(pair.name("col_lide"), 1, 1))
    create()


@scenario(CreateTopicsRequest)
def create_topics_assigned(pair: Pair, version: int) -> None:
    def create(
        name: str, assignments: list[CreatableReplicaAssignment], partitions: int = -1, factor: int = -1
    ) -> None:
        pair.send(
            CreateTopicsRequest([CreatableTopic(pair.name(name), partitions, factor, assignments)], 5_000), version
        )

    create("good", _assignment([1], [1]))
    create("both", _assignment([1]), 1, 1)
    create("count", _assignment([1]), 1, -1)
    create("unknown", _assignment([9]))
    create("twice", _assignment([1, 1]))
    create("empty", _assignment([]))
    create("uneven", _assignment([1], [1, 2]))
    create("gap", [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(2, [1])])
    create("double", [CreatableReplicaAssignment(0, [1]), CreatableReplicaAssignment(0, [1])])
    create("start", [CreatableReplicaAssignment(1, [1])])
    create("negative", [CreatableReplicaAssignment(-1, [1])])
    create("minus", _assignment([-1]))


CONFIGS: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("retention.ms", "5000"), ("cleanup.policy", "compact,delete")),
    (("retention.ms", "-1"), ("segment.bytes", "1048576"), ("min.insync.replicas", "2")),
    (("cleanup.policy", ""),),
    (("cleanup.policy", "compact,wrong"),),
    (("cleanup.policy", "delete,delete"),),
    (("no.such.setting", "1"),),
    (("retention.ms", "abc"),),
    (("retention.ms", "-2"),),
    (("retention.ms", ""),),
    (("retention.ms", " 77 "),),
    (("retention.ms", "99999999999999999999"),),
    (("retention.ms", None),),
    (("retention.ms", "1"), ("retention.ms", "2")),
    (("segment.bytes", "13"),),
    (("segment.bytes", "1.5"),),
    (("segment.index.bytes", "3"),),
    (("max.message.bytes", "-1"),),
    (("message.timestamp.type", "CreateTime"),),
    (("message.timestamp.type", "LogAppendTime"),),
    (("message.timestamp.type", "createtime"),),
    (("compression.type", "lz4"),),
    (("compression.type", "LZ4"),),
    (("compression.type", "brotli"),),
    (("compression.gzip.level", "10"),),
    (("compression.lz4.level", "0"),),
    (("compression.zstd.level", "23"),),
    (("min.cleanable.dirty.ratio", "1.1"),),
    (("min.cleanable.dirty.ratio", "0.25"),),
    (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")),
    (("max.compaction.lag.ms", "0"),),
    (("preallocate", "yes"),),
    (("preallocate", "TRUE"),),
    (("unclean.leader.election.enable", "true"),),
    (("min.insync.replicas", "0"),),
    (("message.format.version", "3.0"),),
    (("message.downconversion.enable", "false"),),
    (("leader.replication.throttled.replicas", "0:1"),),
    (("leader.replication.throttled.replicas", "x"),),
    (("follower.replication.throttled.replicas", "*"),),
    (("remote.storage.enable", "true"),),
    (("remote.storage.enable", "false"),),
    (("local.retention.ms", "100"), ("retention.ms", "50")),
    (("local.retention.bytes", "100"), ("retention.bytes", "50")),
    (("flush.messages", "0"),),
    (("flush.ms", "-1"),),
    (("file.delete.delay.ms", "-1"),),
    (("index.interval.bytes", "-1"),),
    (("segment.jitter.ms", "-1"),),
    (("segment.ms", "0"),),
    (("message.timestamp.before.max.ms", "-1"),),
    (("message.timestamp.after.max.ms", "9223372036854775807"),),
)


@scenario(CreateTopicsRequest)
def create_topics_configs(pair: Pair, version: int) -> None:
    for i, settings in enumerate(CONFIGS):
        configs = [CreatableTopicConfig(name, value) for name, value in settings]
        dry = i % 2 == 1 or len(settings) == 1
        pair.send(CreateTopicsRequest([CreatableTopic(pair.name(f"c{i}"), 1, 1, [], configs)], 5_000, dry), version)


@scenario(DeleteTopicsRequest)
def delete_topics(pair: Pair, version: int) -> None:
    one, two = pair.create(pair.name("one")), pair.create(pair.name("two"), 2)

    def delete(*names: str) -> None:
        if version >= 6:
            pair.send(DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=5_000), version)
        else:
            pair.send(DeleteTopicsRequest(topic_names=list(names), timeout_ms=5_000), version)

    delete(pair.name("missing"))
    delete(one, pair.name("missing"), "a b", "")
    delete(two, two)
    pair.await_gone(one)
    delete(one)
    delete()


@scenario(DeleteTopicsRequest, versions=range(6, 7))
def delete_topics_by_id(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("one"))
    unknown = Uuid(b"unknown-topic-id")

    def delete(*topics: tuple[str | None, Uuid]) -> DeleteTopicsRequest:
        return DeleteTopicsRequest([DeleteTopicState(*each) for each in topics], timeout_ms=5_000)

    pair.send(delete((None, unknown)), version)
    pair.send(delete((None, unknown), (None, unknown)), version)
    pair.send(lambda side: delete((name, side.topic_id(name))), version)
    pair.send(lambda side: delete((None, side.topic_id(name)), (name, Uuid(bytes(16)))), version)
    pair.send(delete((None, Uuid(bytes(16)))), version)
    pair.create(pair.name("two"))
    pair.send(lambda side: delete((None, side.topic_id(pair.name("two")))), version)


@scenario(CreatePartitionsRequest)
def create_partitions(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("t"), 2)

    def grow(
        count: int, assignments: list[list[int]] | None = None, topic: str = name, validate_only: bool = False
    ) -> None:
        given = None if assignments is None else [CreatePartitionsAssignment(each) for each in assignments]
        pair.send(CreatePartitionsRequest([CreatePartitionsTopic(topic, count, given)], 5_000, validate_only), version)

    grow(3, validate_only=True)
    for count in (2, 1, 0, -1):
        grow(count)
    grow(3, [[1]])
    grow(4, [[9]])
    grow(4, [[1, 1]])
    grow(4, [[]])
    grow(4, [])
    grow(4, [[1], [1]])
    grow(5, [[1]])
    grow(5, [[1], [1, 2]])
    grow(4, [[-1]])
    grow(4)
    grow(4, topic=pair.name("missing"))
    grow(4, topic="a b")
    grow(4, topic="__cluster_metadata")
    entries = [CreatePartitionsTopic(name, 6, None), CreatePartitionsTopic(name, 7, None)]
    pair.send(CreatePartitionsRequest(entries, 5_000), version)
    pair.send(CreatePartitionsRequest([], 5_000), version)


@scenario(ElectLeadersRequest)
def elect_leaders(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("t"), 2)
    for kind in (0, 1, 5):
        pair.send(ElectLeadersRequest(kind, [TopicPartitions(name, [0, 1, 7])], 5_000), version)
        pair.send(ElectLeadersRequest(kind, [TopicPartitions(pair.name("missing"), [0])], 5_000), version)
        pair.send(ElectLeadersRequest(kind, [], 5_000), version)


@scenario(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("t"), 2)

    def reassign(partition: int, replicas: list[int] | None, topic: str = name, change: bool = True) -> None:
        entry = ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])
        pair.send(AlterPartitionReassignmentsRequest(5_000, change, [entry]), version)

    reassign(0, None)
    reassign(0, [1])
    reassign(0, [])
    reassign(0, [1, 1])
    reassign(0, [9])
    reassign(0, [1, 9], change=False)
    reassign(0, [-3])
    reassign(7, [1])
    reassign(7, None)
    reassign(0, [1], topic=pair.name("missing"))
    pair.send(AlterPartitionReassignmentsRequest(5_000, True, []), version)
    pair.send(ListPartitionReassignmentsRequest(5_000, None), 0)


@scenario(ListPartitionReassignmentsRequest)
def list_partition_reassignments(pair: Pair, version: int) -> None:
    name = pair.create(pair.name("t"))
    for topics in (None, [], [(name, [0, 5])], [(pair.name("missing"), [0])]):
        asked = None if topics is None else [ListPartitionReassignmentsTopics(*each) for each in topics]
        pair.send(ListPartitionReassignmentsRequest(5_000, asked), version)
