"""The classic group APIs and committed offsets, with their error paths."""

from __future__ import annotations

from functools import partial

from ottla.model.ids import Uuid
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.differential.pair import Pair, Pending, Side
from tests.interop.differential.scenario import scenario

SESSION_MS = 20_000
SUBSCRIPTION = b"\0\0" + ConsumerProtocolSubscription(["t"]).to_bytes(0)
"""Readable: Apache Kafka looks into the subscriptions of consumers, and never answers when it cannot."""


def coordinator(pair: Pair) -> None:
    """Until the offsets topic exists and is loaded."""
    pair.wait(FindCoordinatorRequest(coordinator_keys=["any"]), 4, lambda a: a.coordinators[0].error_code == 0)
    pair.wait(HeartbeatRequest("any", 1, "any"), 4, lambda a: a.error_code == 25)


def join(
    pair: Pair,
    version: int,
    group: str,
    member: str = "member",
    *,
    instance: str | None = None,
    names: tuple[str, ...] = ("range",),
    kind: str = "consumer",
    timeout_ms: int = SESSION_MS,
    fixed: str | None = None,
) -> Pending:
    protocols = [JoinGroupRequestProtocol(name, SUBSCRIPTION) for name in names]

    def build(side: Side) -> JoinGroupRequest:
        known = fixed if fixed is not None else side.memory.get(member, "")
        return JoinGroupRequest(group, timeout_ms, 5_000, known, instance, kind, protocols)

    return pair.start(build, version)


def joined(
    pair: Pair,
    version: int,
    group: str,
    member: str = "member",
    instance: str | None = None,
    names: tuple[str, ...] = ("range",),
) -> None:
    """A member of an empty group, told its id first where the version asks so; remembers `member` and its id."""
    for _ in range(2):
        join(pair, version, group, member, instance=instance, names=names).finish()
        if pair.sides[0].last is None or pair.sides[0].last.error_code != 79:
            break
        pair.remember(member, lambda answer: answer.member_id)
    pair.remember(member, lambda answer: answer.member_id)


def sync(
    pair: Pair,
    version: int,
    group: str,
    member: str = "member",
    *,
    generation: int = 1,
    leader: bool = True,
    instance: str | None = None,
    kind: str | None = "consumer",
    name: str | None = "range",
    fixed: str | None = None,
) -> Pending:
    def build(side: Side) -> SyncGroupRequest:
        known = fixed if fixed is not None else side.memory[member]
        given = [SyncGroupRequestAssignment(known, b"assignment")] if leader else []
        return SyncGroupRequest(group, generation, known, instance, kind, name, given)

    return pair.start(build, version)


@scenario(FindCoordinatorRequest)
def find_coordinator(pair: Pair, version: int) -> None:
    coordinator(pair)
    for kind in (0, 1, 2, 9, -1):
        if kind == 1:
            continue  # the transaction coordinator comes with issue 5's APIs
        if version >= 4:
            pair.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g", "h"]), version)
            pair.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=[""]), version)
            pair.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=[]), version)
        else:
            pair.send(FindCoordinatorRequest("g", kind), version)
            pair.send(FindCoordinatorRequest("", kind), version)


@scenario(JoinGroupRequest)
def join_group_refused(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    join(pair, version, "").finish()
    join(pair, version, group, timeout_ms=10).finish()
    join(pair, version, group, timeout_ms=99_999_999).finish()
    join(pair, version, group, fixed="unknown").finish()
    join(pair, version, group, names=()).finish()
    join(pair, version, group, kind="").finish()
    joined(pair, version, group)
    join(pair, version, group, kind="other").finish()
    join(pair, version, group, names=("other",), fixed="").finish()
    join(pair, version, group, fixed="unknown").finish()
    if version >= 5:
        join(pair, version, group, instance="static", fixed="unknown").finish()
        join(pair, version, pair.name("empty"), instance="", fixed="").finish()
        join(pair, version, pair.name("blank"), instance="a b", fixed="").finish()


@scenario(JoinGroupRequest)
def group_of_one(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    joined(pair, version, group, names=("range", "sticky"))
    sync(pair, min(version, 5), group).finish()
    sync(pair, min(version, 5), group).finish()
    for each in range(5):
        pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), each)
    for each in range(7):
        pair.send(DescribeGroupsRequest([group], include_authorized_operations=True), each)
    join(pair, version, group, names=("range", "sticky")).finish()
    sync(pair, min(version, 5), group, generation=2).finish()
    pair.send(lambda side: LeaveGroupRequest(group, side.memory["member"]), 2)
    pair.send(DescribeGroupsRequest([group]), 5)
    joined(pair, version, group)


@scenario(JoinGroupRequest)
def group_of_two(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, other = pair.name("g"), pair.another()
    joined(pair, version, group, "one")
    sync(pair, min(version, 5), group, "one").finish()
    if version >= 4:
        join(other, version, group, "two").finish()
        other.remember("two", lambda answer: answer.member_id)
    waiting = join(other, version, group, "two")
    pair.wait(lambda side: HeartbeatRequest(group, 1, side.memory["one"]), 4, lambda answer: answer.error_code == 27)
    sync(pair, min(version, 5), group, "one").finish()
    join(pair, version, group, "one").finish()
    waiting.finish()
    other.remember("two", lambda answer: answer.member_id)
    second = sync(other, min(version, 5), group, "two", generation=2, leader=False)
    sync(pair, min(version, 5), group, "one", generation=2).finish()
    second.finish()
    pair.send(
        lambda side: LeaveGroupRequest(group, members=[MemberIdentity(side.memory["two"]), MemberIdentity("unknown")]),
        5,
    )
    pair.send(lambda side: HeartbeatRequest(group, 2, side.memory["one"]), 4)


@scenario(SyncGroupRequest)
def sync_group_refused(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    sync(pair, version, group, fixed="unknown").finish()
    sync(pair, version, "", fixed="unknown").finish()
    joined(pair, 9, group)
    sync(pair, version, group, generation=5).finish()
    sync(pair, version, group, fixed="unknown").finish()
    if version >= 5:
        sync(pair, version, group, kind="other").finish()
        sync(pair, version, group, name="other").finish()
        sync(pair, version, group, kind=None).finish()
    sync(pair, version, group, instance="x").finish()
    sync(pair, version, group).finish()


@scenario(HeartbeatRequest)
def heartbeat_refused(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    pair.send(HeartbeatRequest(group, 1, "unknown"), version)
    pair.send(HeartbeatRequest("", 1, "unknown"), version)
    joined(pair, 9, group)
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"]), version)
    sync(pair, 5, group).finish()
    for generation in (0, 2, -1):
        pair.send(partial(_beat, group, generation), version)
    pair.send(HeartbeatRequest(group, 1, ""), version)
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["member"], "x"), version)


def _beat(group: str, generation: int, side: Side) -> HeartbeatRequest:
    return HeartbeatRequest(group, generation, side.memory["member"])


@scenario(LeaveGroupRequest)
def leave_group(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    joined(pair, 9, group)
    sync(pair, 5, group).finish()

    def leave(*members: MemberIdentity, name: str = group) -> LeaveGroupRequest:
        return LeaveGroupRequest(name, members[0].member_id if members else "", list(members))

    pair.send(leave(MemberIdentity("unknown")), version)
    pair.send(leave(MemberIdentity("")), version)
    pair.send(leave(), version)
    pair.send(leave(MemberIdentity("unknown"), name=pair.name("missing")), version)
    pair.send(leave(MemberIdentity("unknown"), name=""), version)
    if version >= 3:
        pair.send(leave(MemberIdentity("", "no-such-instance")), version)
        pair.send(lambda side: leave(MemberIdentity(side.memory["member"], "no-such-instance")), version)
    pair.send(lambda side: leave(MemberIdentity(side.memory["member"])), version)
    pair.send(lambda side: leave(MemberIdentity(side.memory["member"])), version)
    pair.send(DescribeGroupsRequest([group]), 6)


@scenario(JoinGroupRequest, versions=range(5, 10))
def static_members(pair: Pair, version: int) -> None:
    coordinator(pair)
    group = pair.name("g")
    joined(pair, version, group, "first", "static")
    sync(pair, 5, group, "first", instance="static").finish()
    other = pair.another()
    join(other, version, group, "second", instance="static").finish()  # the same instance, started again
    other.remember("second", lambda answer: answer.member_id)
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["first"], "static"), 4)  # fenced
    sync(pair, 5, group, "first", instance="static").finish()
    pair.send(lambda side: HeartbeatRequest(group, 1, side.memory["second"], "static"), 4)
    pair.send(DescribeGroupsRequest([group]), 6)
    pair.send(LeaveGroupRequest(group, members=[MemberIdentity("", "static")]), 5)
    pair.send(DescribeGroupsRequest([group]), 6)


@scenario(ListGroupsRequest, servers="quiet")
def list_groups(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, offsets = pair.name("g"), pair.name("offsets")
    topic = pair.create(pair.name("t"))
    joined(pair, 9, group)
    _commit(pair, 8, offsets, topic, 0, 5)
    for states, kinds in (
        ([], []),
        (["Empty"], []),
        (["stable", "Empty"], []),
        (["Nonsense"], []),
        ([], ["classic"]),
        ([], ["Consumer"]),
        ([], ["nonsense"]),
        (["CompletingRebalance"], ["Classic"]),
    ):
        pair.send(ListGroupsRequest(states, kinds), version)
    pair.send(lambda side: LeaveGroupRequest(group, members=[MemberIdentity(side.memory["member"])]), 5)
    pair.send(DeleteGroupsRequest([group, offsets]), 2)


@scenario(DescribeGroupsRequest)
def describe_groups_unknown(pair: Pair, version: int) -> None:
    coordinator(pair)
    pair.send(DescribeGroupsRequest([pair.name("missing"), "", pair.name("other")]), version)
    pair.send(DescribeGroupsRequest([]), version)


def _commit(
    pair: Pair,
    version: int,
    group: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    member: str = "",
    generation: int = -1,
    metadata: str | None = "note",
    instance: str | None = None,
) -> None:
    def build(side: Side) -> OffsetCommitRequest:
        entry = OffsetCommitRequestPartition(partition, offset, 3, metadata)
        topics = [OffsetCommitRequestTopic(topic, side.topic_id(topic) if version >= 10 else Uuid(bytes(16)), [entry])]
        return OffsetCommitRequest(group, generation, side.memory.get(member, member), instance, -1, topics)

    pair.send(build, version)


def _fetch(
    pair: Pair,
    version: int,
    group: str,
    topics: dict[str, list[int]] | None,
    member: str | None = None,
    epoch: int = -1,
) -> None:
    def build(side: Side) -> OffsetFetchRequest:
        asked = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(t, side.topic_id(t) if version >= 10 else Uuid(bytes(16)), p)
                for t, p in topics.items()
            ]
        )
        old = None if topics is None else [OffsetFetchRequestTopic(t, p) for t, p in topics.items()]
        return OffsetFetchRequest(group, old, [OffsetFetchRequestGroup(group, member, epoch, asked)], True)

    pair.send(build, version)


@scenario(OffsetCommitRequest)
def offset_commit(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, topic = pair.name("g"), pair.create(pair.name("t"), 2)
    _commit(pair, version, group, topic, 0, 5)
    _commit(pair, version, group, topic, 1, 0, metadata=None)
    _commit(pair, version, group, topic, 0, 7, metadata="")
    _commit(pair, version, group, topic, 0, 7, metadata="x" * 5000)
    _commit(pair, version, group, topic, 0, -1)
    _commit(pair, version, group, topic, 9, 1)
    _commit(pair, version, group, topic, -1, 1)
    _commit(pair, version, group, pair.name("missing"), 0, 1)
    _commit(pair, version, group, "a b", 0, 1)
    _commit(pair, version, "", topic, 0, 1)
    _commit(pair, version, group, topic, 0, 1, member="unknown", generation=1)
    _commit(pair, version, group, topic, 0, 1, generation=4)
    _commit(pair, version, pair.name("new"), topic, 0, 1, member="unknown", generation=1)
    pair.send(OffsetCommitRequest(group, topics=[]), version)
    _fetch(pair, 8, group, None)
    joined(pair, 9, group)
    _commit(pair, version, group, topic, 0, 8, member="member", generation=1)
    sync(pair, 5, group).finish()
    _commit(pair, version, group, topic, 0, 8, member="member", generation=1)
    _commit(pair, version, group, topic, 0, 9, member="member", generation=7)
    _commit(pair, version, group, topic, 0, 9, member="member")
    _commit(pair, version, group, topic, 0, 9)
    _commit(pair, version, group, topic, 0, 9, member="member", generation=1, instance="x")
    _fetch(pair, 8, group, None)


@scenario(OffsetFetchRequest)
def offset_fetch(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, topic, other = pair.name("g"), pair.create(pair.name("t"), 3), pair.create(pair.name("u"))
    _commit(pair, 8, group, topic, 0, 5)
    _commit(pair, 8, group, topic, 2, 6)
    _commit(pair, 8, group, other, 0, 7, metadata=None)
    asked: tuple[dict[str, list[int]], ...] = (
        {topic: [0, 1, 2]},
        {topic: [0], other: [0]},
        {topic: [9]},
        {topic: []},
        {pair.name("missing"): [0]},
        {},
    )
    for topics in asked:
        _fetch(pair, version, group, topics)
    if version >= 2:
        _fetch(pair, version, group, None)
    _fetch(pair, version, pair.name("empty"), {topic: [0]})
    _fetch(pair, version, "", {topic: [0]})
    if version >= 8:
        groups = [OffsetFetchRequestGroup(name, topics=None) for name in (group, pair.name("empty"), group)]
        pair.send(OffsetFetchRequest(groups=groups), version)
        pair.send(OffsetFetchRequest(groups=[]), version)
    if version >= 9:
        _fetch(pair, version, group, {topic: [0]}, "member", 3)


@scenario(OffsetDeleteRequest)
def offset_delete(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, topic = pair.name("g"), pair.create(pair.name("t"), 2)
    for partition in (0, 1):
        _commit(pair, 8, group, topic, partition, 5)

    def delete(name: str, *partitions: int, of: str = group) -> None:
        entry = OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(p) for p in partitions])
        pair.send(OffsetDeleteRequest(of, [entry]), version)

    delete(topic, 0)
    delete(topic, 0)
    delete(topic, 9)
    delete(pair.name("missing"), 0)
    delete(topic, 0, of=pair.name("nobody"))
    delete(topic, 0, of="")
    _fetch(pair, 8, group, None)
    joined(pair, 9, group)
    sync(pair, 5, group).finish()
    delete(topic, 1)
    pair.send(OffsetDeleteRequest(group, []), version)


@scenario(DeleteGroupsRequest)
def delete_groups(pair: Pair, version: int) -> None:
    coordinator(pair)
    group, busy, topic = pair.name("g"), pair.name("busy"), pair.create(pair.name("t"))
    _commit(pair, 8, group, topic, 0, 5)
    joined(pair, 9, busy)
    pair.send(DeleteGroupsRequest([group, busy, pair.name("missing"), ""]), version)
    pair.send(DeleteGroupsRequest([group]), version)
    pair.send(DeleteGroupsRequest([]), version)
    _fetch(pair, 8, group, None)
