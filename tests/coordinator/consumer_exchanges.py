"""The consumer protocol (KIP-848): heartbeats with their epochs and assignments, and what each refuses.

Every group sets its assignment interval to 0, so that what an answer holds does not depend on how fast the servers are;
`assignment_interval` is about the interval itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.metadata.image import RESOURCE_GROUP
from ottla.protocol.generated.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.coordinator.exchanges import exchange
from tests.coordinator.group_exchanges import await_coordinator
from tests.coordinator.offset_exchanges import committing
from tests.interop.differential.pair import Answers, Pair, Side

_REGEX_POLL_S = 0.05


def beating(
    group: str, member: str, epoch: int, topics: list[str] | None = None, **options: Any
) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, instance_id=None, rack_id=None, server_assignor=None
    )
    request.rebalance_timeout_ms = 60_000 if epoch == 0 else -1
    request.subscribed_topic_names = topics
    request.subscribed_topic_regex = None
    request.topic_partitions = [] if epoch == 0 else None
    for name, value in options.items():
        setattr(request, name, value)
    return request


class Members:
    """The members of one group on both servers: each beats with the epoch and the partitions of its last answer."""

    def __init__(self, pair: Pair, group: str, version: int) -> None:
        self.pair = pair
        self.group = group
        self.version = version

    def join(self, member: str, topics: list[str] | None, **options: Any) -> Answers:
        return self._send(member, beating(self.group, member, 0, topics, **options))

    def beat(self, member: str, topics: list[str] | None = None, **options: Any) -> Answers:
        """With the member's own epoch; the member owns the partitions of its last assignment."""

        def request(side: Side) -> ConsumerGroupHeartbeatRequest:
            member_memory = side.memory[self._key(member)]
            owned = [TopicPartitions(topic_id, list(parts)) for topic_id, parts in member_memory["owned"].items()]
            return beating(self.group, member, member_memory["epoch"], topics, **{"topic_partitions": owned, **options})

        return self._send(member, request)

    def beat_silently(self, member: str, **options: Any) -> Answers:
        """Nothing but the epoch: what most heartbeats are."""
        return self.beat(member, topic_partitions=None, **options)

    def leave(self, member: str, epoch: int = -1, **options: Any) -> Answers:
        return self._send(member, beating(self.group, member, epoch, **options))

    def settle(self, members: list[str], rounds: int = 4) -> None:
        for _ in range(rounds):
            for member in members:
                self.beat(member)

    def describe(self) -> None:
        self.pair.send(ConsumerGroupDescribeRequest([self.group], False), 1)

    def _send(
        self, member: str, request: ConsumerGroupHeartbeatRequest | Callable[[Side], ConsumerGroupHeartbeatRequest]
    ) -> Answers:
        answers = self.pair.send(request, self.version)
        for side in self.pair.sides:
            self._learn(side, member)
        return answers

    def _learn(self, side: Side, member: str) -> None:
        answer = side.last
        member_memory = side.memory.setdefault(self._key(member), {"epoch": 0, "owned": {}})
        if answer is None or answer.error_code:
            return
        member_memory["epoch"] = answer.member_epoch
        if answer.assignment is not None:
            member_memory["owned"] = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}

    def _key(self, member: str) -> str:
        return f"{self.group}/{member}"


def topic_on(pair: Pair, name: str, partitions: int) -> str:
    """A topic that the coordinators have seen too: they see a new topic a moment after the partitions do."""
    pair.create(name, partitions)
    pair.settle()
    return name


def configure(pair: Pair, group: str, **settings: str) -> None:
    """Group settings by their names, dots for underscores; both servers have them when this returns."""
    configs = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in settings.items()]
    resource = AlterConfigsResource(RESOURCE_GROUP, group, configs)
    pair.send(IncrementalAlterConfigsRequest([resource], False), 1)
    pair.settle()


def members_of(pair: Pair, version: int = 1, suffix: str = "g", **settings: str) -> Members:
    await_coordinator(pair)
    group = pair.name(suffix)
    configure(pair, group, **{"consumer_assignment_interval_ms": "0", **settings})
    return Members(pair, group, version)


@exchange(ConsumerGroupHeartbeatRequest)
def heartbeat_refused(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic, group = topic_on(pair, pair.name("t"), 2), members.group
    for request in (
        beating("", "m", 0, [topic]),
        beating(" ", "m", 0, [topic]),
        beating(group, "", 0, [topic]) if version else beating(group, "", 1, [topic]),
        beating(group, "", -1),
        beating(group, "m", 0, [topic], instance_id=""),
        beating(group, "m", 0, [topic], rack_id=""),
        beating(group, "m", 0, [topic], rebalance_timeout_ms=-1),
        beating(group, "m", 0, [topic], topic_partitions=None),
        beating(group, "m", 0),
        beating(group, "m", -2),
        beating(group, "m", -3),
        beating(group, "m", 0, [topic], server_assignor="roulette"),
        beating(group, "m", 1),
        beating(group, "m", -1),
        beating(group, "m", -2, instance_id="i"),
    ):
        pair.send(request, version)
    members.join("m", [topic])
    for epoch in (1, 3, 99):
        pair.send(beating(group, "m", epoch), version)
        pair.send(beating(group, "m", epoch, topic_partitions=[]), version)
    pair.send(beating(group, "ghost", 2), version)
    pair.send(beating(group, "ghost", -1), version)
    pair.send(beating(group, "m", 2, instance_id="i"), version)
    pair.send(beating(group, "m", -2, instance_id="i"), version)
    members.beat_silently("m")
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1))
def heartbeat_without_a_member_id(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 2)
    for side in pair.sides:
        answer = side.ask(beating(members.group, "", 0, [topic]), version)
        assert (answer.error_code, answer.member_epoch, len(answer.member_id)) == (0, 2, 22)
    pair.send(beating(members.group, "", -2, instance_id="i"), version)


@exchange(ConsumerGroupHeartbeatRequest)
def join_and_rebalance(pair: Pair, version: int) -> None:
    """Three members come, step by step, and two go; every answer has the same epochs and the same partitions."""
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 7)
    members.join("one", [topic])
    members.beat_silently("one")
    members.join("two", [topic])
    members.describe()
    members.beat_silently("two")
    members.beat_silently("one")  # must give up
    members.describe()
    members.beat_silently("two")  # must still wait
    members.beat("one")  # has given up
    members.describe()
    members.beat("two")
    members.join("three", [topic])
    members.settle(["one", "two", "three"])
    members.describe()
    members.leave("one")
    members.settle(["two", "three"])
    members.describe()
    members.leave("two")
    members.leave("three")
    members.describe()
    pair.send(ListGroupsRequest(types_filter=["consumer"], states_filter=["Empty"]), 5)
    pair.send(DescribeGroupsRequest([members.group]), 6)
    pair.send(DeleteGroupsRequest([members.group]), 2)
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def assignors(pair: Pair, version: int) -> None:
    for assignor in ("uniform", "range", None):
        members = members_of(pair, version, f"g-{assignor}")
        topic = topic_on(pair, pair.name(f"t-{assignor}"), 11)
        names = [f"member-{i}" for i in range(5)]
        for name in names:
            members.join(name, [topic], server_assignor=assignor)
        members.settle(names, 5)
        members.describe()
        members.beat(names[0], server_assignor="range")
        members.beat(names[1], server_assignor="range")
        members.leave(names[4])
        members.settle(names[:4], 5)
        members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def different_subscriptions(pair: Pair, version: int) -> None:
    """Topics with different partition counts: their order does not depend on the servers' own ids."""
    for assignor in ("uniform", "range"):
        members = members_of(pair, version, f"g-{assignor}")
        wide, middle, thin = (topic_on(pair, pair.name(f"{assignor}-{size}"), size) for size in (9, 4, 1))
        members.join("a", [wide, middle, thin], server_assignor=assignor)
        members.join("b", [wide], server_assignor=assignor)
        members.join("c", [middle, thin], server_assignor=assignor)
        members.join("d", [wide, middle], server_assignor=assignor)
        members.settle(["a", "b", "c", "d"], 6)
        members.describe()
        members.beat("a", [thin])
        members.settle(["a", "b", "c", "d"], 6)
        members.describe()
        members.leave("b")
        members.settle(["a", "c", "d"], 6)
        members.describe()


@exchange(ConsumerGroupHeartbeatRequest)
def static_members(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 4)
    members.join("one", [topic], instance_id="i1")
    members.join("two", [topic], instance_id="i2")
    members.settle(["one", "two"], 3)
    pair.send(beating(members.group, "other", 0, [topic], instance_id="i1"), version)
    pair.send(beating(members.group, "other", 1, instance_id="i1"), version)
    pair.send(beating(members.group, "other", -2, instance_id="i1"), version)
    members.leave("one", -2, instance_id="i1")
    members.describe()
    members.beat("two", instance_id="i2")
    members.join("again", [topic], instance_id="i1")
    members.describe()
    members.beat("again", instance_id="i1")
    pair.send(beating(members.group, "one", 1, instance_id="i1"), version)
    members.leave("again", -1, instance_id="i1")
    members.beat("two", instance_id="i2")
    members.beat("two", instance_id="i2")
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def a_lost_answer(pair: Pair, version: int) -> None:
    """A member that missed the answer with its new epoch sends the old epoch again, with the partitions of that
    time."""
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 4)
    members.join("one", [topic])
    members.join("two", [topic])
    before = [dict(side.memory[f"{members.group}/one"]) for side in pair.sides]
    members.beat("one")
    members.beat("one")
    for side, member_memory in zip(pair.sides, before, strict=True):
        side.memory[f"{members.group}/one"]["epoch"] = member_memory["epoch"]
    members.beat("one")
    members.beat_silently("one")
    pair.send(beating(members.group, "one", 1, topic_partitions=[]), version)
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def full_heartbeats(pair: Pair, version: int) -> None:
    """A member that sends its full state gets the whole assignment."""
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 3)
    members.join("one", [topic], rack_id="r1")
    members.beat("one", [topic], rebalance_timeout_ms=60_000)
    members.beat("one", rebalance_timeout_ms=50_000)
    members.beat("one", [topic, "nowhere"])
    members.beat("one", [])
    members.describe()
    members.beat("one")
    members.beat("one", [topic])
    members.beat("one")
    members.join("one", [topic])
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def topics_change(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic, later = topic_on(pair, pair.name("t"), 2), pair.name("later")
    members.join("one", [topic, later])
    members.beat("one")
    topic_on(pair, later, 3)
    members.settle(["one"], 2)
    pair.send(CreatePartitionsRequest([CreatePartitionsTopic(topic, 4, None)], 10_000, False), 3)
    pair.await_leaders(topic, 4)
    pair.settle()
    members.settle(["one"], 2)
    members.describe()
    pair.send(DeleteTopicsRequest(topic_names=[later], timeout_ms=10_000), 5)
    pair.await_gone(later)
    pair.settle()
    members.settle(["one"], 3)
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def regular_expressions(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    first = topic_on(pair, pair.name("orders-1"), 2)
    topic_on(pair, pair.name("other"), 1)
    members.join("one", None, subscribed_topic_regex=f"{pair.name('orders')}.*")
    await_assigned(members, "one", 1)
    members.join("two", [], subscribed_topic_regex=f"{pair.name('orders')}.*")
    members.settle(["one", "two"], 3)
    members.describe()
    members.beat("two", subscribed_topic_regex="", subscribed_topic_names=[first])
    members.settle(["one", "two"], 3)
    members.describe()
    members.leave("one")
    members.settle(["two"], 2)
    members.describe()


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def invalid_expressions(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    for regex in ("(", "[a", "a**", "*", "(?=x)", "\\", "x{2,1}", "\\1", "a)", "(?<n>a)(?<n>b)"):
        members.join("one", None, subscribed_topic_regex=regex)
    topic_on(pair, pair.name("t"), 1)
    members.join("one", None, subscribed_topic_regex="")
    members.beat("one", subscribed_topic_regex="[")
    members.describe()


def await_assigned(members: Members, member: str, topics: int) -> None:
    """Beat (uncompared, each server by itself) until the expression is resolved; then once more, compared."""
    for side in members.pair.sides:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            member_memory = side.memory[f"{members.group}/{member}"]
            answer = side.ask(beating(members.group, member, member_memory["epoch"]), members.version)
            if answer.assignment is not None:
                member_memory["owned"] = {
                    topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions
                }
            member_memory["epoch"] = answer.member_epoch
            if len(member_memory["owned"]) >= topics:
                break
            time.sleep(_REGEX_POLL_S)
    members.beat(member)


@exchange(ConsumerGroupDescribeRequest)
def describe(pair: Pair, version: int) -> None:
    members = members_of(pair)
    topic = topic_on(pair, pair.name("t"), 2)
    simple = pair.name("simple")
    pair.send(committing(simple, {topic: {0: 1}}), 9)
    members.join("one", [topic], instance_id="i", rack_id="r")
    for operations in (False, True):
        group_ids = [members.group, pair.name("nobody"), simple, ""]
        pair.send(ConsumerGroupDescribeRequest(group_ids, operations), version)
    pair.send(ConsumerGroupDescribeRequest([], False), version)
    pair.send(DescribeGroupsRequest([members.group]), 6)
    pair.send(DescribeGroupsRequest([members.group]), 5)


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def offsets_by_epoch(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic, group = topic_on(pair, pair.name("t"), 4), members.group
    members.join("one", [topic])
    for commit_version in (2, 8, 9):
        for epoch, member in ((2, "one"), (1, "one"), (3, "one"), (-1, ""), (-1, "one"), (2, "ghost"), (0, "")):
            pair.send(committing(group, {topic: {0: 5}}, generation=epoch, member=member), commit_version)
    members.join("two", [topic])
    members.settle(["one", "two"], 3)
    members.describe()
    for epoch in (2, 3, 4):
        for partition in range(4):
            pair.send(committing(group, {topic: {partition: 6}}, generation=epoch, member="one"), 9)
    for fetch_version in (8, 9):
        for epoch, name in ((-1, None), (3, "one"), (2, "one"), (3, "ghost"), (-1, "one")):
            request_group = OffsetFetchRequestGroup(
                group, name, epoch, [OffsetFetchRequestTopics(topic, partition_indexes=[0])]
            )
            pair.send(OffsetFetchRequest(groups=[request_group]), fetch_version)
    everything = OffsetFetchRequestGroup(group, None, -1, None)
    pair.send(OffsetFetchRequest(groups=[everything], require_stable=True), 9)
    deleting = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    pair.send(OffsetDeleteRequest(group, deleting), 0)
    pair.send(DeleteGroupsRequest([group]), 2)
    members.leave("one")
    members.leave("two")
    pair.send(OffsetDeleteRequest(group, deleting), 0)
    pair.send(committing(group, {topic: {0: 7}}), 9)
    pair.send(DeleteGroupsRequest([group]), 2)
    pair.send(OffsetFetchRequest(groups=[everything]), 9)


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def a_simple_group_becomes_a_consumer_group(pair: Pair, version: int) -> None:
    members = members_of(pair, version)
    topic = topic_on(pair, pair.name("t"), 1)
    pair.send(committing(members.group, {topic: {0: 42}}), 9)
    pair.send(beating(members.group, "one", 1), version)
    members.join("one", [topic])
    members.describe()
    everything = OffsetFetchRequestGroup(members.group, None, -1, None)
    pair.send(OffsetFetchRequest(groups=[everything]), 9)


@exchange(ConsumerGroupHeartbeatRequest, versions=range(1, 2))
def assignment_interval(pair: Pair, version: int) -> None:
    """The second member comes within the interval: it is in, at the old epoch, with nothing, until the time is over."""
    members = members_of(pair, version, consumer_assignment_interval_ms="15000", consumer_session_timeout_ms="500000")
    topic = topic_on(pair, pair.name("t"), 2)
    members.join("one", [topic])
    members.join("two", [topic])
    members.beat("one")
    members.describe()
    configure(pair, members.group, consumer_assignment_interval_ms="0", consumer_heartbeat_interval_ms="7000")
    members.settle(["one", "two"], 3)
    members.describe()
