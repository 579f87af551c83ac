"""One data folder, two servers: consumer groups with members go on where they were, in both directions.

The members survive the change: they beat with the epochs of the first server. The second server neither fences them nor
rebalances, and its hash of the group's topics is the same. Then the group goes on changing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.coordinator.consumer_exchanges import beating
from tests.coordinator.migration_exchanges import JOIN_VERSION, Classic
from tests.coordinator.offset_exchanges import committing
from tests.interop.differential.pair import Side, settle
from tests.interop.differential.servers import Address
from tests.interop.ottla_server import OttlaServer
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180), pytest.mark.usefixtures("requires_apache_kafka")]

GROUPS = ["names", "expression", "mixed"]


class Group:
    """The members of one group, each with its last answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[Any]] = {}

    def beat(self, side: Side, member: str, epoch: int | None = None, **options: Any) -> Any:
        epoch = self.epochs[member] if epoch is None else epoch
        if epoch:
            options.setdefault("topic_partitions", self.owned.get(member, []))
        answer = side.ask(beating(self.name, member, epoch, **options), 1)
        assert answer.error_code == 0, answer
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member] = answer.assignment.topic_partitions
        return answer

    def settle(self, side: Side, members: list[str]) -> None:
        deadline = time.monotonic() + 30
        while True:
            for member in members:
                self.beat(side, member)
            if described(side, [self.name])[0].group_state == "Stable":
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)


def side_of(server: ApacheKafka) -> Side:
    side = Side(Address("any", server.port, server.controller_port, server.directory, server.log_file))
    await_(lambda: side.ask(FindCoordinatorRequest("names", 0), 3).error_code == 0)
    await_(lambda: all(group.error_code in (0, 69) for group in described(side, GROUPS)))
    return side


def await_(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def described(side: Side, groups: list[str]) -> list[Any]:
    answer: Any = side.ask(ConsumerGroupDescribeRequest(groups, False), 1)
    for group in answer.groups:
        group.members.sort(key=lambda member: member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                assignment.topic_partitions = sorted(
                    (topic.topic_id, topic.topic_name, sorted(topic.partitions))
                    for topic in assignment.topic_partitions
                )
    descriptions: list[Any] = sorted(answer.groups, key=lambda group: group.group_id)
    return descriptions


def offsets(side: Side) -> Any:
    answer: Any = side.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("names", None, -1, None)]), 9)
    return [(t.name, p.partition_index, p.committed_offset) for t in answer.groups[0].topics for p in t.partitions]


@pytest.mark.parametrize(
    ("first", "second"), [(OttlaServer, ApacheKafka), (ApacheKafka, OttlaServer)], ids=["to-apache", "to-ottla"]
)
def test_members_live_through_a_change_of_server(
    first: type[ApacheKafka], second: type[ApacheKafka], tmp_path: Path
) -> None:
    names, expression, mixed = (Group(name) for name in GROUPS)
    with first(tmp_path) as server:
        side = side_of(server)
        topics = [CreatableTopic(name, partitions, 1) for name, partitions in (("ta", 5), ("tb", 70))]
        side.ask(CreateTopicsRequest(topics, 10_000), 7)
        settle([side])  # Kafka's coordinator sees the topic a moment later than its metadata
        names.beat(side, "a", 0, topics=["ta", "tb"], instance_id="i", rack_id="r")
        names.beat(side, "b", 0, topics=["ta", "tb"])
        names.settle(side, ["a", "b"])
        expression.beat(side, "e", 0, subscribed_topic_regex="t[ab]")
        await_(lambda: expression.beat(side, "e") and len(expression.owned["e"]) == 2)
        mixed.beat(side, "m", 0, topics=["ta"], server_assignor="range")
        classic = Classic(None, "mixed", ["ta"])  # type: ignore[arg-type]  # it only makes requests here
        side.memory["classic"] = side.ask(classic.joining(side), JOIN_VERSION).member_id
        assert side.ask(classic.joining(side), JOIN_VERSION).error_code == 0
        mixed.beat(side, "m")
        commit = committing("names", {"ta": {0: 11}}, generation=names.epochs["a"], member="a")
        assert side.ask(commit, 9).topics[0].partitions[0].error_code == 0
        before, committed = described(side, GROUPS), offsets(side)
    with second(tmp_path) as server:
        side = side_of(server)
        assert described(side, GROUPS) == before
        assert offsets(side) == committed
        for member in ("a", "b"):
            answer = names.beat(side, member, topic_partitions=None)
            assert answer.assignment is None
        expression.beat(side, "e", topic_partitions=None)
        after = described(side, ["names", "expression"])
        # Nobody rebalanced: not even the hash of the topics was found to be another.
        assert [group.group_epoch for group in after] == [before[0].group_epoch, before[2].group_epoch]
        names.beat(side, "c", 0, topics=["ta", "tb"])
        names.settle(side, ["a", "b", "c"])
        assert len(described(side, ["names"])[0].members) == 3
        mixed.beat(side, "m", -1)
        await_(lambda: described(side, ["mixed"])[0].error_code == 69)  # down to a classic group


def is_visible(side: Side, topic: str) -> bool:
    answer: Any = side.ask(MetadataRequest([MetadataRequestTopic(name=topic)], False), 12)
    return bool(answer.topics[0].error_code == 0)
