"""Topics and settings on one node: the refusals in Kafka's words, and the records behind the answers.

`tests/interop/test_controller_answers.py` compares many more cases with Apache Kafka itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.controller.node import Node, node_properties, started

from ottla.controller.state import ControllerRequestContext
from ottla.metadata.records import ClearElrRecord, ConfigRecord
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.alter_configs_request import AlterableConfig as LegacyConfig
from ottla.protocol.generated.alter_configs_request import AlterConfigsRequest
from ottla.protocol.generated.alter_configs_request import AlterConfigsResource as LegacyResource
from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    made = started(tmp_path_factory.mktemp("node") / "data")
    made.submit(CreateTopicsRequest([CreatableTopic("exists", 2, 1), CreatableTopic("dot.ted", 1, 1)]), 7)
    return made


def create(node: Node, *topics: CreatableTopic, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return [(t.error_code, t.error_message) for t in node.submit(request, 7).topics]


def alter(node: Node, kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    resources = [AlterConfigsResource(kind, name, [AlterableConfig(*change) for change in changes])]
    (answer,) = node.submit(IncrementalAlterConfigsRequest(resources), 1).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (CreatableTopic("", 1, 1), 17, "Topic name is invalid: the empty string is not allowed"),
        (CreatableTopic("..", 1, 1), 17, "Topic name is invalid: '..' is not allowed"),
        (CreatableTopic("dot_ted", 1, 1), 17, "Topic 'dot_ted' collides with existing topic: dot.ted"),
        (CreatableTopic("exists", 1, 1), 36, "Topic 'exists' already exists."),
        (
            CreatableTopic("__cluster_metadata", 1, 1),
            42,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (CreatableTopic("n", 0, 1), 37, "Number of partitions was set to an invalid non-positive value."),
        (CreatableTopic("n", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (CreatableTopic("n", 10_001, 1), 44, "Excessively large number of partitions per request."),
        (
            CreatableTopic("n", -1, -1, [CreatableReplicaAssignment(0, [9])]),
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            CreatableTopic("n", 1, 1, [], [CreatableTopicConfig("retention.ms", None)]),
            40,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            CreatableTopic("n", 1, 1, [], [CreatableTopicConfig("no.such", "1")]),
            40,
            "Unknown topic config name: no.such",
        ),
    ],
)
def test_topics_that_cannot_be(node: Node, topic: CreatableTopic, code: int, message: str) -> None:
    assert create(node, topic) == [(code, message)]
    assert "n" not in node.image.topics_by_name


def test_one_bad_topic_does_not_stop_the_others(node: Node) -> None:
    answers = create(node, CreatableTopic("good", -1, -1), CreatableTopic("b@d", 1, 1), CreatableTopic("good2", 2, 1))
    assert [code for code, _ in answers] == [0, 17, 0]
    assert len(node.image.topics_by_name["good2"].partitions) == 2


def test_defaults_come_from_the_settings(tmp_path: Path) -> None:
    properties = {**node_properties(tmp_path / "data"), "num.partitions": "5", "log.retention.ms": "1234"}
    node = Node(tmp_path / "data", properties)
    node.format()
    node.start().join()
    (answer,) = node.submit(CreateTopicsRequest([CreatableTopic("t", -1, -1)]), 7).topics
    assert (answer.num_partitions, answer.replication_factor) == (5, 1)
    configs = {config.name: (config.value, config.config_source) for config in answer.configs}
    assert configs["retention.ms"] == ("1234", 4)
    assert configs["segment.bytes"] == ("1073741824", 5)
    assert [config.name for config in answer.configs] == sorted(configs)


def test_validate_only_writes_nothing(node: Node) -> None:
    before = node.raft.end_offset
    assert create(node, CreatableTopic("never", 3, 1), validate_only=True) == [(0, None)]
    assert node.raft.end_offset == before


def test_partitions_only_grow(node: Node) -> None:
    def grow(count: int) -> tuple[int, str | None]:
        request = CreatePartitionsRequest([CreatePartitionsTopic("exists", count, None)])
        (answer,) = node.submit(request, 3).results
        return answer.error_code, answer.error_message

    assert grow(2) == (37, "Topic already has 2 partition(s).")
    assert grow(1) == (37, "The topic exists currently has 2 partition(s); 1 would not be an increase.")
    assert grow(3) == (0, None)
    assert set(node.image.topics_by_name["exists"].partitions) == {0, 1, 2}


def test_partitions_of_all_topics_of_a_request_have_one_limit(node: Node) -> None:
    """Each topic had 10,000 of its own: 500 topics were 5 million partitions in one request."""
    for name in ("p", "q", "r"):
        create(node, CreatableTopic(name, 1, 1))
    before = node.raft.end_offset
    topics = [CreatePartitionsTopic(name, count, None) for name, count in (("p", 6_001), ("q", 4_002), ("r", 4_001))]
    answers = {r.name: (r.error_code, r.error_message) for r in node.submit(CreatePartitionsRequest(topics), 3).results}
    assert answers == {
        "p": (0, None), "q": (44, "Excessively large number of partitions per request."), "r": (0, None)
    }  # fmt: skip
    assert node.raft.end_offset - before == 10_000


def test_deleting_by_name_and_by_id(node: Node) -> None:
    create(node, CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1))
    topic_id = node.image.topics_by_name["a"].id
    asked = [DeleteTopicState(None, topic_id), DeleteTopicState("b"), DeleteTopicState("c")]
    answers = {r.name: r.error_code for r in node.submit(DeleteTopicsRequest(asked), 6).responses}
    assert answers == {"a": 0, "b": 0, "c": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not {"a", "b"} & set(node.image.topics_by_name)


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", {**node_properties(tmp_path / "data"), "delete.topic.enable": "false"})
    node.format()
    node.start().join()
    create(node, CreatableTopic("a", 1, 1))
    (answer,) = node.submit(DeleteTopicsRequest([], ["a"]), 5).responses
    assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    (answer,) = node.submit(DeleteTopicsRequest([], ["a"]), 1).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_settings_are_set_appended_and_taken_back(node: Node) -> None:
    assert alter(node, TOPIC, "exists", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert node.image.topic_config("exists") == {"cleanup.policy": "delete,compact"}
    assert alter(node, TOPIC, "exists", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", SET, "5")) == (0, None)
    assert node.image.topic_config("exists") == {"cleanup.policy": "compact", "retention.ms": "5"}
    assert alter(node, TOPIC, "exists", ("retention.ms", SET, "x"))[0] == ErrorCode.INVALID_CONFIG
    resources = [LegacyResource(TOPIC, "exists", [LegacyConfig("segment.ms", "9")])]
    node.submit(AlterConfigsRequest(resources), 2)
    assert node.image.topic_config("exists") == {"segment.ms": "9"}, "the legacy call replaces everything"
    assert alter(node, TOPIC, "exists", ("segment.ms", DELETE, None)) == (0, None)
    assert node.image.topic_config("exists") == {}


def decided(node: Node, kind: int, name: str, *changes: tuple[str, int, str | None]) -> list[Any]:
    resources = [AlterConfigsResource(kind, name, [AlterableConfig(*change) for change in changes])]
    request = IncrementalAlterConfigsRequest(resources)
    return node.runtime.controller.decide(request, ControllerRequestContext(version=1)).records


def test_a_broker_setting_is_written_even_when_it_stays(node: Node) -> None:
    alter(node, BROKER, "", ("log.retention.ms", SET, "777"))
    again = decided(node, BROKER, "", ("log.retention.ms", SET, "777"))
    assert again == [ConfigRecord(BROKER, "", "log.retention.ms", "777")], "KAFKA-14136: the broker reloads"
    alter(node, TOPIC, "exists", ("retention.ms", SET, "5"))
    assert decided(node, TOPIC, "exists", ("retention.ms", SET, "5")) == []


def test_another_min_isr_clears_the_elr(node: Node) -> None:
    assert decided(node, TOPIC, "exists", ("min.insync.replicas", SET, "2"))[-1] == ClearElrRecord("exists")
    assert decided(node, BROKER, "", ("min.insync.replicas", SET, "2"))[-1] == ClearElrRecord("")
    refused = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    assert alter(node, BROKER, "1", ("min.insync.replicas", SET, "2")) == (ErrorCode.INVALID_CONFIG, refused)


def test_features(node: Node) -> None:
    def update(name: str, level: int, kind: int) -> int:
        request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(name, level, upgrade_type=kind)])
        return int(node.submit(request, 2).error_code)

    assert update("share.version", 0, 2) == 0
    assert "share.version" not in node.image.features
    assert update("share.version", 1, 1) == 0
    assert node.image.features["share.version"] == 1
    assert update("metadata.version", 25, 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert update("no.such", 1, 1) == ErrorCode.INVALID_UPDATE_VERSION


def test_describe_quorum(node: Node) -> None:
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    answer = node.submit(request, 2)
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert partition.high_watermark == node.raft.end_offset
    assert [voter.replica_id for voter in partition.current_voters] == [1]
    assert answer.nodes[0].listeners[0].port == 9093
