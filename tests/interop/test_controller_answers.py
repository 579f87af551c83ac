"""The controller's decisions against Apache Kafka's: the same admin requests, one after another, to both.

Only the controller is ours here: requests go straight into it, without a listener. Topic ids differ, so they are
compared by the name that they belong to; lists whose order means nothing are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import ZERO_UUID, Uuid
from ottla.protocol.generated.alter_configs_request import AlterableConfig as LegacyConfig
from ottla.protocol.generated.alter_configs_request import AlterConfigsRequest
from ottla.protocol.generated.alter_configs_request import AlterConfigsResource as LegacyResource
from ottla.protocol.generated.alter_configs_response import AlterConfigsResponse
from ottla.protocol.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.protocol.generated.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.generated.create_partitions_response import CreatePartitionsResponse
from ottla.protocol.generated.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.generated.create_topics_response import CreateTopicsResponse
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.delete_topics_response import DeleteTopicsResponse
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.generated.describe_quorum_response import DescribeQuorumResponse
from ottla.protocol.generated.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.protocol.generated.elect_leaders_response import ElectLeadersResponse
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.protocol.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.generated.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from ottla.protocol.generated.unregister_broker_request import UnregisterBrokerRequest
from ottla.protocol.generated.unregister_broker_response import UnregisterBrokerResponse
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.generated.update_features_response import UpdateFeaturesResponse
from ottla.protocol.primitives import Message, Struct
from tests.controller.node import Node, node_properties
from tests.support.apache_kafka import ApacheKafka
from tests.support.frames import RawConnection

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("requires_apache_kafka")]

RESPONSES: dict[type[Message], type[Message]] = {
    AlterConfigsRequest: AlterConfigsResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    DescribeQuorumRequest: DescribeQuorumResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    UnregisterBrokerRequest: UnregisterBrokerResponse,
    UpdateFeaturesRequest: UpdateFeaturesResponse,
}

# What may differ: both run on their own clocks and logs.
VOLATILE = {"high_watermark", "leader_epoch", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp"}


class Kafka:
    def __init__(self, kafka: ApacheKafka) -> None:
        self._port = kafka.port

    def submit(self, request: Message, version: int) -> Message:
        flexible = version >= request.FLEXIBLE_FROM
        with RawConnection("127.0.0.1", self._port, timeout=30) as connection:
            body = connection.request(request.API_KEY, version, request.to_bytes(version), flexible=flexible)
        assert body is not None, "Kafka closed the connection"
        response, end = RESPONSES[type(request)].decode(body, 1 if flexible else 0, version)
        assert end == len(body)
        return response


class Ours:
    def __init__(self, node: Node) -> None:
        self.node = node

    def submit(self, request: Message, version: int) -> Message:
        sent, _ = type(request).decode(request.to_bytes(version), 0, version)
        answer = self.node.submit(sent, version)
        response, _ = RESPONSES[type(request)].decode(answer.to_bytes(version), 0, version)
        return response


class Both:
    def __init__(self, kafka: Kafka, ours: Ours) -> None:
        self.sides = (kafka, ours)
        self.ids: tuple[dict[str, Uuid], dict[str, Uuid]] = ({}, {})

    def agree(self, request: Message, version: int | None = None) -> Any:
        """The response of both, or an AssertionError that shows where they part."""
        version = request.MAX_VERSION if version is None else version
        answers = []
        for side, ids in zip(self.sides, self.ids, strict=True):
            response = side.submit(_with_ids(request, ids), version)
            if isinstance(response, CreateTopicsResponse):
                ids.update({topic.name: topic.topic_id for topic in response.topics if topic.topic_id != ZERO_UUID})
            answers.append(_comparable(response, {topic_id: name for name, topic_id in ids.items()}))
        assert answers[1] == answers[0]
        return answers[0]


def _with_ids(request: Message, ids: dict[str, Uuid]) -> Message:
    """`id:NAME` in DeleteTopics stands for that topic's id on each side."""
    if not isinstance(request, DeleteTopicsRequest):
        return request
    topics = [
        DeleteTopicState(None, ids[t.name[3:]]) if t.name and t.name.startswith("id:") else t for t in request.topics
    ]
    return DeleteTopicsRequest(topics, request.topic_names, request.timeout_ms)


def _comparable(value: Any, names: dict[Uuid, str]) -> Any:
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__slots__ if name not in VOLATILE}
        return {name: _comparable(field, names) for name, field in fields.items()}
    if isinstance(value, list):
        return sorted((_comparable(item, names) for item in value), key=repr)
    if isinstance(value, bytes) and len(value) == 16:
        return names.get(Uuid(value), value)
    return value


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with ApacheKafka() as kafka:
        directory: Path = tmp_path_factory.mktemp("ours") / "data"
        properties = {
            **kafka.properties,
            **node_properties(directory, port=kafka.port, controller_port=kafka.controller_port),
        }
        node = Node(directory, properties)
        node.format()
        node.start().join()
        yield Both(Kafka(kafka), Ours(node))
        node.runtime.close()


def topics(*asked: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(list(asked), 10_000, validate_only)


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    values = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name, partitions, replicas, [], values)


def assigned(
    name: str, *assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1
) -> CreatableTopic:
    return CreatableTopic(name, partitions, replicas, [CreatableReplicaAssignment(i, b) for i, b in assignments])


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_of_every_version(both: Both, version: int) -> None:
    answer = both.agree(
        topics(topic(f"plain-{version}", 3), topic(f"configured-{version}", retention_ms="77")), version
    )
    assert [result["error_code"] for result in answer["topics"]] == [0, 0]


BAD_NAMES = ["", ".", "..", "a b", "x" * 250, "ä", "a/b", "a\0b", "__cluster_metadata"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_topic_names(both: Both, name: str) -> None:
    both.agree(topics(topic(name)))


def test_names_that_collide(both: Both) -> None:
    both.agree(topics(topic("col.li_de")))
    both.agree(topics(topic("col_li.de"), topic("col.li.de"), topic("col.li_de"), topic("x" * 249)))
    both.agree(topics(topic("twice"), topic("twice"), topic("once")))


@pytest.mark.parametrize(
    ("partitions", "replicas"), [(0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, -1), (0, 0), (1, 32767), (10_001, 1)]
)
def test_counts(both: Both, partitions: int, replicas: int) -> None:
    both.agree(topics(topic(f"counts{partitions}{replicas}", partitions, replicas)))


MANUAL = {
    "good": assigned("m1", (0, [1]), (1, [1])),
    "gap": assigned("m2", (0, [1]), (2, [1])),
    "from-one": assigned("m3", (1, [1])),
    "twice": assigned("m4", (0, [1]), (0, [1])),
    "stranger": assigned("m5", (0, [7])),
    "same-broker": assigned("m6", (0, [1, 1])),
    "empty": assigned("m7", (0, [])),
    "other-factor": assigned("m8", (0, [1]), (1, [])),
    "with-partitions": assigned("m9", (0, [1]), partitions=1),
    "with-replicas": assigned("m10", (0, [1]), replicas=1),
}


@pytest.mark.parametrize("case", MANUAL)
def test_manual_assignments(both: Both, case: str) -> None:
    both.agree(topics(MANUAL[case]))


def test_validate_only_creates_nothing(both: Both) -> None:
    both.agree(topics(topic("only", 2), topic("a b"), validate_only=True))
    both.agree(topics(topic("only", 2)))


CONFIGS: list[dict[str, str | None]] = [
    {"no_such": "1"},
    {"retention_ms": "x"},
    {"retention_ms": None, "segment_bytes": None},
    {"cleanup_policy": "compact,delete"},
    {"cleanup_policy": "wrong"},
    {"min_compaction_lag_ms": "100", "max_compaction_lag_ms": "10"},
    {"min_insync_replicas": "0"},
    {"compression_type": "lz5"},
    {"remote_storage_enable": "true"},
]


@pytest.mark.parametrize("index", range(len(CONFIGS)))
def test_configs_of_new_topics(both: Both, index: int) -> None:
    both.agree(topics(topic(f"configs-{index}", 1, 1, **CONFIGS[index])))


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(both: Both, version: int) -> None:
    name = f"grow-{version}"
    both.agree(topics(topic(name, 2), topic(f"{name}-manual", 1)))

    def grow(*asked: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(list(asked), 10_000, validate_only)

    def manual(count: int, *brokers: list[int]) -> CreatePartitionsTopic:
        return CreatePartitionsTopic(f"{name}-manual", count, [CreatePartitionsAssignment(b) for b in brokers])

    for count in (4, 4, 3, 0, -1):
        both.agree(grow(CreatePartitionsTopic(name, count, None)), version)
    both.agree(grow(CreatePartitionsTopic("absent", 3, None), CreatePartitionsTopic(name, 5, None)), version)
    both.agree(grow(CreatePartitionsTopic(name, 6, None), validate_only=True), version)
    both.agree(grow(CreatePartitionsTopic(name, 6, None)), version)
    for case in (manual(3, [1]), manual(2, []), manual(2, [7]), manual(2, [1, 1]), manual(3, [1], [1])):
        both.agree(grow(case), version)
    twice = CreatePartitionsTopic(name, 8, None)
    both.agree(grow(twice, twice), version)


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics(both: Both, version: int) -> None:
    names = [f"gone-{version}-{i}" for i in range(5)]
    both.agree(topics(*(topic(name) for name in names)))
    if version < 6:
        both.agree(DeleteTopicsRequest([], [names[0], "absent", names[1], names[1]], 10_000), version)
        return
    both.agree(DeleteTopicsRequest([DeleteTopicState(f"id:{names[0]}"), DeleteTopicState(names[1])], [], 10_000))
    odd = [
        DeleteTopicState(None, ZERO_UUID),
        DeleteTopicState(names[2], Uuid(b"0123456789abcdef")),
        DeleteTopicState(None, Uuid(b"0123456789abcdef")),
        DeleteTopicState(f"id:{names[3]}"),
        DeleteTopicState(f"id:{names[3]}"),
        DeleteTopicState(names[4]),
        DeleteTopicState(f"id:{names[4]}"),
    ]
    both.agree(DeleteTopicsRequest(odd, [], 10_000))
    both.agree(DeleteTopicsRequest([DeleteTopicState(name) for name in names], [], 10_000))


TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
THROTTLED = "leader.replication.throttled.replicas"

CHANGES: dict[str, list[tuple[int, str, list[tuple[str, int, str | None]]]]] = {
    "set": [(TOPIC, "conf", [("retention.ms", SET, "5")])],
    "delete": [(TOPIC, "conf", [("retention.ms", DELETE, None)])],
    "delete-unset": [(TOPIC, "conf", [("segment.bytes", DELETE, None)])],
    "append": [(TOPIC, "conf", [("cleanup.policy", APPEND, "compact")])],
    "append-again": [(TOPIC, "conf", [("cleanup.policy", APPEND, "compact")])],
    "subtract": [(TOPIC, "conf", [("cleanup.policy", SUBTRACT, "delete")])],
    "subtract-all": [(TOPIC, "conf", [("cleanup.policy", SUBTRACT, "compact")])],
    "append-no-list": [(TOPIC, "conf", [("retention.ms", APPEND, "5")])],
    "unknown-operation": [(TOPIC, "conf", [("retention.ms", 9, "5")])],
    "null-set": [(TOPIC, "conf", [("retention.ms", SET, None), ("segment.ms", APPEND, None)])],
    "unknown-name": [(TOPIC, "conf", [("no.such", SET, "5")])],
    "bad-value": [(TOPIC, "conf", [("retention.ms", SET, "five")])],
    "absent-topic": [(TOPIC, "absent", [("retention.ms", SET, "5")])],
    "default-topic": [(TOPIC, "", [("retention.ms", SET, "5")])],
    "bad-topic-name": [(TOPIC, "a b", [("retention.ms", SET, "5")])],
    "twice": [(TOPIC, "conf", [("retention.ms", SET, "5")]), (TOPIC, "conf", [("segment.ms", SET, "5")])],
    "key-twice": [(TOPIC, "conf", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")])],
    "one-good-one-bad": [
        (TOPIC, "conf", [("retention.ms", SET, "5")]),
        (TOPIC, "absent", [("retention.ms", SET, "5")]),
    ],
    "broker-default": [(BROKER, "", [("log.retention.ms", SET, "1000")])],
    "broker-1": [(BROKER, "1", [("log.retention.ms", SET, "2000")])],
    "broker-read-only": [(BROKER, "1", [("node.id", SET, "2")])],
    "broker-unknown-name": [(BROKER, "1", [("no.such", SET, "2")])],
    "broker-bad-value": [(BROKER, "", [("log.retention.ms", SET, "many")])],
    "broker-9": [(BROKER, "9", [("log.retention.ms", SET, "2000")])],
    "broker-x": [(BROKER, "x", [("log.retention.ms", SET, "2000")])],
    "broker-delete": [(BROKER, "1", [("log.retention.ms", DELETE, None)])],
    "min-isr-cluster-delete": [(BROKER, "", [("min.insync.replicas", DELETE, None)])],
    "min-isr-broker": [(BROKER, "1", [("min.insync.replicas", SET, "2")])],
    "min-isr-cluster": [(BROKER, "", [("min.insync.replicas", SET, "1")])],
    "min-isr-topic": [(TOPIC, "conf", [("min.insync.replicas", SET, "1")])],
    "group": [(GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])],
    "group-bad": [(GROUP, "g", [("consumer.session.timeout.ms", SET, "1")])],
    "group-unknown": [(GROUP, "g", [("no.such", SET, "1")])],
    "group-default": [(GROUP, "", [("consumer.session.timeout.ms", SET, "50000")])],
    "metrics": [(METRICS, "m", [("interval.ms", SET, "1000"), ("metrics", SET, "*")])],
    "metrics-bad": [(METRICS, "m", [("interval.ms", SET, "1")])],
    "metrics-unknown": [(METRICS, "m", [("no.such", SET, "1")])],
    "metrics-unnamed": [(METRICS, "", [("interval.ms", SET, "1000")])],
    "unknown-type": [(77, "x", [("retention.ms", SET, "5")])],
    "large": [(TOPIC, "conf", [(THROTTLED, SET, ",".join(f"{i}:1" for i in range(4000)))])],
    "append-to-large": [(TOPIC, "conf", [(THROTTLED, APPEND, ",".join(f"{i}:2" for i in range(1200)))])],
    "nothing": [(TOPIC, "conf", [])],
}


@pytest.fixture(scope="module")
def configured(both: Both) -> Both:
    both.agree(topics(topic("conf")))
    return both


@pytest.mark.parametrize("case", CHANGES)
def test_incremental_alter_configs(configured: Both, case: str) -> None:
    for version in (0, 1):
        for validate_only in (True, False):
            resources = [
                AlterConfigsResource(kind, name, [AlterableConfig(*entry) for entry in entries])
                for kind, name, entries in CHANGES[case]
            ]
            configured.agree(IncrementalAlterConfigsRequest(resources, validate_only), version)


# Apache Kafka 4.3.1 never answers an AlterConfigs request that names a resource twice.
LEGACY = [name for name in CHANGES if "append" not in name and "subtract" not in name and name != "twice"]


@pytest.mark.parametrize("case", LEGACY)
def test_legacy_alter_configs(configured: Both, case: str) -> None:
    for version in range(3):
        resources = [
            LegacyResource(kind, name, [LegacyConfig(key, value) for key, _, value in entries])
            for kind, name, entries in CHANGES[case]
        ]
        configured.agree(AlterConfigsRequest(resources, validate_only=False), version)


@pytest.mark.parametrize("version", range(3))
def test_elect_leaders(both: Both, version: int) -> None:
    both.agree(topics(topic(f"elect-{version}", 2)))
    for kind in (0, 1) if version else (0,):
        asked = [TopicPartitions(f"elect-{version}", [0, 1, 2]), TopicPartitions("absent", [0])]
        both.agree(ElectLeadersRequest(kind, asked, 10_000), version)
    both.agree(ElectLeadersRequest(0, [], 10_000), version)
    if version:
        both.agree(ElectLeadersRequest(7, [TopicPartitions(f"elect-{version}", [0])], 10_000), version)


@pytest.mark.parametrize("version", range(2))
def test_reassignments(both: Both, version: int) -> None:
    name = f"move-{version}"
    both.agree(topics(topic(name, 2)))
    for replicas in ([1], [2], [1, 2], [1, 1], [], None):
        parts = [ReassignablePartition(index, replicas) for index in (0, 5)]
        request = AlterPartitionReassignmentsRequest(
            10_000, version == 0, [ReassignableTopic(name, parts), ReassignableTopic("absent", parts)]
        )
        both.agree(request, version)
    both.agree(ListPartitionReassignmentsRequest(10_000, None))
    asked = [ListPartitionReassignmentsTopics(name, [0, 9]), ListPartitionReassignmentsTopics("absent", [0])]
    both.agree(ListPartitionReassignmentsRequest(10_000, asked))


UPGRADE, SAFE, UNSAFE = 1, 2, 3
FEATURES: dict[str, tuple[str, int, int]] = {
    "same": ("group.version", 1, UPGRADE),
    "unknown": ("no.such", 1, UPGRADE),
    "too-high": ("group.version", 9, UPGRADE),
    "negative": ("group.version", -1, UPGRADE),
    "downgrade-as-upgrade": ("share.version", 0, UPGRADE),
    "upgrade-as-downgrade": ("share.version", 1, SAFE),
    "unknown-type": ("share.version", 1, 9),
    "metadata-same": ("metadata.version", 30, UPGRADE),
    "metadata-unstable": ("metadata.version", 31, UPGRADE),
    "metadata-down": ("metadata.version", 25, SAFE),
    "metadata-down-unsafe": ("metadata.version", 25, UNSAFE),
    "metadata-too-low": ("metadata.version", 3, SAFE),
    "share-off": ("share.version", 0, SAFE),
    "share-on": ("share.version", 1, UPGRADE),
    "kraft-same": ("kraft.version", 0, UPGRADE),
}


@pytest.mark.parametrize("case", FEATURES)
@pytest.mark.parametrize("version", [1, 2])
def test_update_features(both: Both, case: str, version: int) -> None:
    name, level, kind = FEATURES[case]
    update = FeatureUpdateKey(name, level, upgrade_type=kind)
    both.agree(UpdateFeaturesRequest(10_000, [update], validate_only=True), version)
    both.agree(UpdateFeaturesRequest(10_000, [update], validate_only=False), version)


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum(both: Both, version: int) -> None:
    both.agree(DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), version)
    both.agree(DescribeQuorumRequest([TopicData("other", [PartitionData(0)])]), version)


def test_unregister_a_stranger(both: Both) -> None:
    both.agree(UnregisterBrokerRequest(broker_id=77))
