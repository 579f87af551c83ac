"""Settings of consumer groups, on servers that were started with them: the same answers as Apache Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.coordinator.consumer_exchanges import beating, members_of, topic_on
from tests.coordinator.group_exchanges import await_coordinator
from tests.coordinator.migration_exchanges import Classic, classic_group
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.servers import two_servers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120), pytest.mark.usefixtures("requires_apache_kafka")]


def test_limits_and_no_migration(tmp_path: Path) -> None:
    settings = {
        "group.consumer.max.size": "2",
        "group.consumer.migration.policy": "disabled",
        "group.consumer.assignors": "range",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "2000",
    }
    with two_servers(tmp_path, settings) as (reference, candidate):
        pair = Pair(Side(reference), Side(candidate), "limits")
        members = members_of(pair, consumer_heartbeat_interval_ms="1500")
        topic = topic_on(pair, pair.name("t"), 4)
        members.join("one", [topic], server_assignor="uniform")
        members.join("one", [topic])
        members.join("two", [topic], instance_id="i")
        members.join("three", [topic])
        members.join("two", [topic])
        members.settle(["one", "two"], 3)
        members.describe()
        Classic(pair, members.group, [topic]).join()
        other = members_of(pair, suffix="classic")
        classic_group(pair, other, topic)
        other.join("new", [topic])
        pair.send(DescribeGroupsRequest([other.group]), 6)
        pair.check()


def test_without_the_consumer_protocol(tmp_path: Path) -> None:
    with two_servers(tmp_path, {"group.coordinator.rebalance.protocols": "classic"}) as (reference, candidate):
        pair = Pair(Side(reference), Side(candidate), "classic-only")
        await_coordinator(pair)
        pair.send(beating("g", "m", 0, ["t"]), 1)
        pair.send(ConsumerGroupDescribeRequest(["g", "h"], False), 1)
        pair.check()


def test_the_feature_is_turned_off_and_on(tmp_path: Path) -> None:
    """group.version, as kafka-features changes it."""
    with two_servers(tmp_path) as (reference, candidate):
        pair = Pair(Side(reference), Side(candidate), "feature")
        await_coordinator(pair)
        members = members_of(pair)
        topic = topic_on(pair, pair.name("t"), 2)
        members.join("one", [topic])
        for level, upgrade_type in ((0, 1), (0, 2), (1, 1)):
            pair.send(UpdateFeaturesRequest(10_000, [FeatureUpdateKey("group.version", level, False, upgrade_type)]), 1)
            pair.settle()
            members.beat_silently("one")
            members.describe()
        pair.check()
