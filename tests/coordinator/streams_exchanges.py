"""Streams groups (KIP-1071): heartbeats with their epochs, tasks and statuses, and the refusals.

Every group sets its assignment interval and its initial delay to 0: answers then do not depend on the speed of the
servers. `assignment_delays` tests these two settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest
from ottla.protocol.generated.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
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
from ottla.protocol.generated.streams_group_describe_request import StreamsGroupDescribeRequest
from ottla.protocol.generated.streams_group_heartbeat_request import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskOffset,
    Topology,
)
from tests.coordinator.consumer_exchanges import beating as consumer_beating
from tests.coordinator.consumer_exchanges import configure, topic_on
from tests.coordinator.exchanges import exchange
from tests.coordinator.group_exchanges import await_coordinator, joining
from tests.coordinator.offset_exchanges import committing
from tests.coordinator.streams_topologies import beating, internal, subtopology, task_ids, topology, word_count
from tests.interop.differential.pair import Answers, Pair, Side

_TOPIC_RESOURCE = 2


class Threads:
    """The members of one group on both servers: each beats with the epoch and the tasks of its last answer."""

    def __init__(self, pair: Pair, group: str) -> None:
        self.pair = pair
        self.group = group

    def join(self, member: str, brought: Topology | None, **options: Any) -> Answers:
        return self._send(member, lambda _: _with(beating(self.group, member, 0, brought), options))

    def beat(self, member: str, **options: Any) -> Answers:
        """With the member's own epoch; the member has the tasks of its last assignment."""

        def request(side: Side) -> StreamsGroupHeartbeatRequest:
            member_memory = side.memory[self._key(member)]
            active, standby = task_ids(member_memory["active"]), task_ids(member_memory["standby"])
            owned = {"active_tasks": active, "standby_tasks": standby, "warmup_tasks": []}
            return _with(beating(self.group, member, member_memory["epoch"]), {**owned, **options})

        return self._send(member, request)

    def beat_silently(self, member: str, **options: Any) -> Answers:
        """Nothing but the epoch: what most heartbeats are."""
        return self.beat(member, **{"active_tasks": None, "standby_tasks": None, "warmup_tasks": None, **options})

    def leave(self, member: str, **options: Any) -> Answers:
        return self._send(member, lambda _: _with(beating(self.group, member, -1), options))

    def settle(self, members: list[str], rounds: int = 4) -> None:
        for _ in range(rounds):
            for member in members:
                self.beat(member)

    def describe(self) -> None:
        self.pair.send(StreamsGroupDescribeRequest([self.group], False), 0)

    def _send(self, member: str, request: Callable[[Side], StreamsGroupHeartbeatRequest]) -> Answers:
        answers = self.pair.send(request, 0)
        for side in self.pair.sides:
            answer = side.last
            member_memory = side.memory.setdefault(self._key(member), {"epoch": 0, "active": {}, "standby": {}})
            if answer is None or answer.error_code:
                continue
            member_memory["epoch"] = answer.member_epoch
            if answer.active_tasks is not None:
                member_memory["active"] = {tasks.subtopology_id: tasks.partitions for tasks in answer.active_tasks}
                member_memory["standby"] = {tasks.subtopology_id: tasks.partitions for tasks in answer.standby_tasks}
        return answers

    def _key(self, member: str) -> str:
        return f"{self.group}/{member}"


def _with(request: StreamsGroupHeartbeatRequest, options: dict[str, Any]) -> StreamsGroupHeartbeatRequest:
    for name, value in options.items():
        setattr(request, name, value)
    return request


def threads_of(pair: Pair, suffix: str = "g", **settings: str) -> Threads:
    await_coordinator(pair)
    group = pair.name(suffix)
    own = {"streams_assignment_interval_ms": "0", "streams_initial_rebalance_delay_ms": "0", **settings}
    configure(pair, group, **own)
    return Threads(pair, group)


def await_topics(pair: Pair, *topics: tuple[str, int]) -> None:
    """Internal topics come a moment after the heartbeat that found them missing."""
    for name, partitions in topics:
        pair.await_leaders(name, partitions)
    pair.settle()


def counting(pair: Pair, partitions: int, suffix: str = "g", **settings: str) -> tuple[Threads, Topology]:
    """A group that counts words and whose internal topics are there."""
    threads = threads_of(pair, suffix, **settings)
    source, repartition, changelog = (pair.name(f"{suffix}-{part}") for part in ("lines", "repartition", "changelog"))
    topic_on(pair, source, partitions)
    brought = word_count(source, repartition, changelog)
    threads.join("one", brought)
    await_topics(pair, (repartition, partitions), (changelog, partitions))
    threads.beat("one")
    return threads, brought


@exchange(StreamsGroupHeartbeatRequest)
def streams_heartbeat_refused(pair: Pair, version: int) -> None:
    threads = threads_of(pair)
    topic, group = topic_on(pair, pair.name("t"), 2), threads.group
    simple = topology(subtopology("0", [topic]))
    expression = topology(subtopology("0", [topic]))
    expression.subtopologies[0].source_topic_regex = ["a.*"]
    for epoch, brought, options in (
        (0, simple, {"group_id": ""}),
        (0, simple, {"group_id": " "}),
        (0, simple, {"member_id": ""}),
        (0, simple, {"instance_id": "i"}),
        (0, simple, {"instance_id": ""}),
        (0, simple, {"rack_id": ""}),
        (0, simple, {"rebalance_timeout_ms": -1}),
        (0, simple, {"active_tasks": None}),
        (0, simple, {"standby_tasks": None}),
        (0, simple, {"warmup_tasks": None}),
        (0, simple, {"active_tasks": task_ids({"0": [0]})}),
        (0, simple, {"warmup_tasks": task_ids({"0": [0]})}),
        (0, simple, {"task_offsets": [TaskOffset("0", 0, 1)]}),
        (0, simple, {"task_end_offsets": []}),
        (0, None, {}),
        (0, expression, {}),
        (0, topology(subtopology("0", [topic], changelogs=[internal("log", 3)])), {}),
        (0, topology(subtopology("0", ["__consumer_offsets"])), {}),
        (0, topology(subtopology("0", [topic], sinks=["no/name"])), {}),
        (0, topology(subtopology("0", [topic]), epoch=-1), {}),
        (0, topology(subtopology("0", [topic]), subtopology("0", [topic])), {}),
        (0, topology(subtopology("0", [])), {}),
        (0, topology(subtopology("0", [], changelogs=[internal("log")])), {}),
        (0, topology(subtopology("0", [topic], joined=[([4], [])])), {}),
        (0, topology(subtopology("0", [topic], repartition=[internal("never")])), {}),
        (0, topology(subtopology("0", [], sinks=["x"], repartition=[internal("x")])), {}),
        (1, None, {}),
        (1, simple, {}),
        (1, None, {"active_tasks": []}),
        (-1, None, {}),
        (-2, None, {}),
        (-2, None, {"instance_id": "i"}),
        (-3, None, {}),
    ):
        pair.send(_with(beating(group, "m", epoch, brought), options), version)
    threads.join("m", simple)
    threads.describe()
    for epoch in (1, 3, 99):
        pair.send(beating(group, "m", epoch), version)
    pair.send(beating(group, "ghost", 2), version)
    pair.send(beating(group, "ghost", -1), version)
    threads.beat("m", active_tasks=task_ids({"7": [0]}))
    threads.beat("m", active_tasks=task_ids({"0": [2]}))
    threads.beat("m", active_tasks=task_ids({"0": [-1]}))
    pair.send(beating(group, "n", 0, topology(subtopology("0", [topic]), epoch=1)), version)
    pair.send(beating(group, "n", 0, topology(subtopology("1", [topic]))), version)
    threads.beat_silently("m")
    threads.describe()


@exchange(StreamsGroupDescribeRequest)
def streams_describe_refused(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")
    pair.send(StreamsGroupDescribeRequest([group], False), version)
    pair.send(StreamsGroupDescribeRequest([""], True), version)
    pair.send(StreamsGroupDescribeRequest([], True), version)
    pair.send(committing(group, {pair.create(pair.name("t")): {0: 3}}), 8)
    pair.send(StreamsGroupDescribeRequest([group], True), version)


@exchange(StreamsGroupHeartbeatRequest)
def word_count_comes_and_goes(pair: Pair, version: int) -> None:
    """Missing internal topics, then tasks; a second thread of another process, a third of the first; they go."""
    threads = threads_of(pair)
    source, repartition, changelog = (pair.name(part) for part in ("lines", "repartition", "changelog"))
    topic_on(pair, source, 3)
    brought = word_count(source, repartition, changelog)
    threads.join("one", brought)
    threads.describe()
    await_topics(pair, (repartition, 3), (changelog, 3))
    for name in (repartition, changelog):
        resources = [DescribeConfigsResource(_TOPIC_RESOURCE, name, ["cleanup.policy", "retention.ms"])]
        pair.send(DescribeConfigsRequest(resources, True, False), 4)
        pair.send(MetadataRequest([MetadataRequestTopic(name=name)], False), 8)
    threads.beat("one")
    threads.describe()
    threads.join("two", brought)
    threads.describe()
    threads.beat_silently("two")
    threads.beat_silently("one")  # must give up
    threads.describe()
    threads.beat("two")  # must still wait
    threads.beat("one")  # has given up
    threads.beat("two")
    threads.describe()
    threads.join("three", brought, process_id="process-one")
    threads.settle(["one", "two", "three"])
    threads.describe()
    threads.leave("one")
    threads.settle(["two", "three"])
    threads.describe()
    pair.send(ListGroupsRequest(types_filter=["streams"], states_filter=["Stable"]), 5)
    pair.send(DeleteGroupsRequest([threads.group]), 2)
    threads.leave("two")
    threads.leave("three")
    threads.describe()
    pair.send(ListGroupsRequest(types_filter=["streams"], states_filter=["Empty"]), 5)
    pair.send(DescribeGroupsRequest([threads.group]), 6)
    pair.send(DeleteGroupsRequest([threads.group]), 2)
    threads.describe()


@exchange(StreamsGroupHeartbeatRequest)
def standby_tasks(pair: Pair, version: int) -> None:
    """Copies on other processes than the active tasks', in a group with one standby replica, then two, then none."""
    threads, brought = counting(pair, 4, streams_num_standby_replicas="1")
    threads.join("two", brought)
    threads.join("three", brought)
    threads.settle(["one", "two", "three"], 5)
    threads.describe()
    configure(pair, threads.group, streams_num_standby_replicas="2")
    threads.settle(["one", "two", "three"], 5)
    threads.describe()
    threads.leave("two")
    threads.settle(["one", "three"], 4)
    threads.describe()
    threads.join("four", brought, process_id="process-one")
    threads.settle(["one", "three", "four"], 4)
    threads.describe()
    configure(pair, threads.group, streams_num_standby_replicas="0")
    threads.settle(["one", "three", "four"], 4)
    threads.describe()


@exchange(StreamsGroupHeartbeatRequest)
def many_threads(pair: Pair, version: int) -> None:
    """Nine threads of four processes over 22 tasks, then five of them: who gets what is the same on both."""
    threads, brought = counting(pair, 11, streams_num_standby_replicas="1")
    names = [f"thread-{number}" for number in range(9)]
    for number, name in enumerate(names):
        threads.join(name, brought, process_id=f"p{number % 4}")
    threads.settle(["one", *names], 4)
    threads.describe()
    for name in names[::2]:
        threads.leave(name)
    threads.settle(["one", *names[1::2]], 4)
    threads.describe()


@exchange(StreamsGroupHeartbeatRequest)
def topics_that_do_not_fit(pair: Pair, version: int) -> None:
    threads = threads_of(pair)
    left_topic, right_topic, missing = (
        pair.name("left"),
        pair.name("right"),
        [pair.name(f"no-{number}") for number in range(5)],
    )
    topic_on(pair, left_topic, 2)
    topic_on(pair, right_topic, 3)
    pair.send(beating(pair.name("missing"), "m", 0, topology(subtopology("0", [left_topic, *missing]))), version)
    pair.send(StreamsGroupDescribeRequest([pair.name("missing")], False), version)
    joined = topology(subtopology("0", [left_topic, right_topic], joined=[([0, 1], [])]))
    pair.send(beating(pair.name("uneven"), "m", 0, joined), version)
    fixed = subtopology("1", [left_topic], repartition=[internal(pair.name("fixed"), 5)], joined=[([0], [0])])
    feeding = subtopology("0", [right_topic], sinks=[pair.name("fixed")])
    pair.send(beating(pair.name("misfit"), "m", 0, topology(feeding, fixed)), version)
    both = subtopology(
        "1", [], repartition=[internal(pair.name("a"), 4), internal(pair.name("b"), 6)], joined=[([], [0, 1])]
    )
    sinks = subtopology("0", [right_topic], sinks=[pair.name("a"), pair.name("b")])
    pair.send(beating(pair.name("two-sizes"), "m", 0, topology(sinks, both)), version)
    exists = topology(subtopology("0", [left_topic], changelogs=[internal(right_topic)]))
    threads.join("m", exists)
    threads.describe()
    pair.send(CreatePartitionsRequest([CreatePartitionsTopic(left_topic, 3, None)], 10_000, False), 3)
    pair.await_leaders(left_topic, 3)
    pair.settle()
    threads.beat("m")
    threads.beat("m")
    threads.describe()


@exchange(StreamsGroupHeartbeatRequest)
def partition_counts_follow(pair: Pair, version: int) -> None:
    """Repartition topics in a chain, a join of a source with one of them, a size of its own: what is created."""
    threads = threads_of(pair)
    small, large = topic_on(pair, pair.name("small"), 2), topic_on(pair, pair.name("large"), 4)
    first, second, own, store = (pair.name(part) for part in ("first", "second", "own", "store"))
    threads.join(
        "m",
        topology(
            subtopology("0", [small], sinks=[first]),
            subtopology("1", [large], repartition=[internal(first)], sinks=[second], joined=[([0], [0])]),
            subtopology("2", [], repartition=[internal(second), internal(own, 3)], changelogs=[internal(store)]),
            subtopology("3", [small], sinks=[own]),
        ),
    )
    await_topics(pair, (first, 4), (second, 2), (own, 3), (store, 3))
    threads.beat("m")
    threads.beat("m")
    threads.describe()
    pair.send(DeleteTopicsRequest(topic_names=[small], timeout_ms=10_000), 5)
    pair.await_gone(small)
    pair.settle()
    threads.beat("m")
    threads.beat("m")
    threads.describe()


@exchange(StreamsGroupHeartbeatRequest)
def creation_fails(pair: Pair, version: int) -> None:
    """A setting that no topic has: the answer reports the error, and the broker does not try again at once."""
    threads = threads_of(pair)
    source = topic_on(pair, pair.name("t"), 1)
    threads.join("m", topology(subtopology("0", [source], changelogs=[internal(pair.name("log"), no_such="1")])))

    def beat(side: Side) -> StreamsGroupHeartbeatRequest:
        return beating(threads.group, "m", side.memory[threads._key("m")]["epoch"])

    pair.wait(beat, 0, lambda answer: any("no.such" in status.status_detail for status in answer.status or []))
    threads.beat("m")
    threads.beat("m")


@exchange(StreamsGroupHeartbeatRequest)
def lost_answers_and_shutdown(pair: Pair, version: int) -> None:
    threads, brought = counting(pair, 2)
    threads.join("two", brought)
    before = [dict(side.memory[f"{threads.group}/one"]) for side in pair.sides]
    threads.beat("one")
    threads.beat("one")
    for side, member_memory in zip(pair.sides, before, strict=True):
        side.memory[f"{threads.group}/one"]["epoch"] = member_memory["epoch"]
    threads.beat("one")
    threads.beat_silently("one")
    threads.beat("two", shutdown_application=True)
    threads.beat("one")
    threads.leave("two")
    threads.join("three", brought)
    threads.leave("three")
    threads.leave("one")
    threads.join("one", brought)


@exchange(StreamsGroupHeartbeatRequest)
def members_change(pair: Pair, version: int) -> None:
    """Endpoints, tags, racks: each change moves the group's epoch."""
    threads, brought = counting(pair, 2)
    threads.join("two", brought, user_endpoint=Endpoint("there", 80), client_tags=[KeyValue("zone", "b")])
    threads.settle(["one", "two"], 3)
    threads.beat("one", user_endpoint=Endpoint("here", 8080), endpoint_information_epoch=-1)
    threads.beat("one", rack_id="r1", client_tags=[KeyValue("zone", "a"), KeyValue("cluster", "x")])
    threads.beat("two", endpoint_information_epoch=99)
    threads.beat("one", process_id="another", rebalance_timeout_ms=5_000)
    threads.settle(["one", "two"], 3)
    threads.describe()
    threads.join("one", brought)
    threads.describe()
    threads.join("old", topology(*brought.subtopologies, epoch=0))


@exchange(StreamsGroupHeartbeatRequest)
def offsets_of_streams_groups(pair: Pair, version: int) -> None:
    threads, brought = counting(pair, 2)
    group, source = threads.group, brought.subtopologies[0].source_topics[0]
    for member, epoch, api in (
        ("one", 3, 9),
        ("one", 2, 9),
        ("one", 99, 9),
        ("ghost", 3, 9),
        ("one", 3, 8),
        ("", -1, 9),
    ):
        pair.send(committing(group, {source: {0: 5}}, generation=epoch, member=member), api)
    for fetching, epoch in ((None, -1), ("one", 3), ("one", 1), ("ghost", 3)):
        request_group = OffsetFetchRequestGroup(
            group, fetching, epoch, [OffsetFetchRequestTopics(source, partition_indexes=[0])]
        )
        pair.send(OffsetFetchRequest(groups=[request_group]), 9)
    topics = [OffsetDeleteRequestTopic(source, [OffsetDeleteRequestPartition(0)])]
    pair.send(OffsetDeleteRequest(group, topics), 0)
    threads.join("two", brought)
    threads.settle(["one", "two"], 3)
    threads.leave("one")
    threads.leave("two")
    pair.send(OffsetDeleteRequest(group, topics), 0)
    pair.send(committing(group, {source: {0: 7}}), 9)
    pair.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, None)]), 9)


@exchange(StreamsGroupHeartbeatRequest)
def groups_of_other_kinds(pair: Pair, version: int) -> None:
    """An empty classic group becomes a streams group and the other way round; nobody else's group does."""
    threads, brought = counting(pair, 1)
    source = brought.subtopologies[0].source_topics[0]
    pair.send(joining(threads.group), 3)
    pair.send(joining(threads.group, "ghost"), 3)
    pair.send(consumer_beating(threads.group, "m", 0, [source]), 1)
    threads.leave("one")
    pair.send(consumer_beating(threads.group, "m", 0, [source]), 1)
    offsets = pair.name("offsets-only")
    pair.send(committing(offsets, {source: {0: 1}}), 8)
    pair.send(beating(offsets, "m", 0, brought), version)
    pair.send(StreamsGroupDescribeRequest([offsets], False), version)
    consumers = pair.name("consumers")
    pair.send(consumer_beating(consumers, "m", 0, [source]), 1)
    pair.send(beating(consumers, "m", 0, brought), version)
    pair.send(beating(consumers, "m", 2), version)
    pair.send(beating(consumers, "m", -1), version)


@exchange(StreamsGroupHeartbeatRequest)
def assignment_delays(pair: Pair, version: int) -> None:
    source = topic_on(pair, pair.name("t"), 2)
    simple = topology(subtopology("0", [source]))
    slow = threads_of(pair, "slow", streams_initial_rebalance_delay_ms="600000")
    slow.join("one", simple)
    slow.join("two", simple)
    slow.beat("one")
    slow.describe()
    rare = threads_of(pair, "rare", streams_assignment_interval_ms="15000")
    rare.join("one", simple)
    rare.join("two", simple)
    rare.beat("one")
    rare.describe()


@exchange(StreamsGroupHeartbeatRequest)
def what_kafka_gets_wrong(pair: Pair, version: int) -> None:
    """Two differences on purpose (docs/differences.md): an endpoint before the sources are there makes Kafka fail, and
    it finds no group by the state NotReady."""
    threads = threads_of(pair)
    brought = topology(subtopology("0", [pair.name("later")]))
    request = _with(beating(threads.group, "one", 0, brought), {"user_endpoint": Endpoint("here", 1)})
    codes = {side.name: side.ask(request, version).error_code for side in pair.sides}
    assert codes == {"apache": -1, "ottla": 0}
    without = beating(threads.group, "two", 0, brought)
    list_request = ListGroupsRequest(types_filter=["streams"], states_filter=["NotReady"])
    listed = {}
    for side in pair.sides:
        assert side.ask(without, version).error_code == 0
        listed[side.name] = [group.group_id for group in side.ask(list_request, 5).groups]
    assert threads.group in listed["ottla"]
    assert listed["apache"] == []
