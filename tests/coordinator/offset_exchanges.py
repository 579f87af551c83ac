"""Offsets of groups, and groups as administrators see them."""

from __future__ import annotations

from ottla.model.ids import ZERO_UUID, Uuid
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
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
from ottla.protocol.generated.txn_offset_commit_request import TxnOffsetCommitRequest
from tests.coordinator.exchanges import exchange
from tests.coordinator.group_exchanges import await_coordinator, join, syncing
from tests.interop.differential.pair import Pair
from tests.interop.differential.transactional import Producer, coordinator

UNKNOWN_ID = Uuid(bytes(range(16)))


def committing(
    group: str,
    offsets: dict[str, dict[int, int]],
    *,
    ids: dict[str, Uuid] | None = None,
    generation: int = -1,
    member: str = "",
    metadata: str | None = "m",
) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name,
            (ids or {}).get(name, ZERO_UUID),
            [OffsetCommitRequestPartition(index, offset, 3, metadata) for index, offset in partitions.items()],
        )
        for name, partitions in offsets.items()
    ]
    return OffsetCommitRequest(group, generation, member, topics=topics)


def fetching(groups: dict[str, dict[str, list[int]] | None], version: int, ids: dict[str, Uuid]) -> OffsetFetchRequest:
    if version < 8:
        group, topics = next(iter(groups.items()))
        single = None if topics is None else [OffsetFetchRequestTopic(name, parts) for name, parts in topics.items()]
        return OffsetFetchRequest(group, single)
    request_groups = []
    for group, topics in groups.items():
        several = None
        if topics is not None:
            several = [OffsetFetchRequestTopics(n, ids.get(n, ZERO_UUID), parts) for n, parts in topics.items()]
        request_groups.append(OffsetFetchRequestGroup(group, topics=several))
    return OffsetFetchRequest(groups=request_groups)


def with_ids(pair: Pair, topic: str) -> None:
    for side in pair.sides:
        side.memory["ids"] = {topic: side.topic_id(topic), "unknown": UNKNOWN_ID}


@exchange(ListGroupsRequest)
def list_groups(pair: Pair, version: int) -> None:
    """First of all, as long as there are no other groups whose sessions end when they like."""
    await_coordinator(pair)
    topic, group = pair.create(pair.name("t")), "listed"

    def listed(states: list[str] | None = None, types: list[str] | None = None) -> None:
        pair.send(ListGroupsRequest(states or [], types or []), version)

    pair.send(committing(group, {topic: {0: 5}}), 9)
    listed()
    if version >= 4:
        listed(["Empty"])
        listed([" empty "])
        listed(["Stable", "nonsense"])
    if version >= 5:
        listed([], ["classic"])
        listed([], ["CONSUMER"])
        listed([], ["nonsense"])
    join(pair, group, 9)
    listed()
    pair.send(lambda side: syncing(side, group), 5)
    listed()
    pair.send(lambda side: LeaveGroupRequest(group, members=[MemberIdentity(side.memory["member"])]), 5)
    pair.send(DeleteGroupsRequest([group]), 2)
    listed()


@exchange(OffsetCommitRequest)
def offset_commit(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    topic, group = pair.create(pair.name("t"), 2), pair.name("g")
    with_ids(pair, topic)

    def commit(offsets: dict[str, dict[int, int]], **options: object) -> None:
        pair.send(lambda side: committing(group, offsets, ids=side.memory["ids"], **options), version)  # type: ignore[arg-type]

    commit({topic: {0: 5, 1: 6}})
    commit({topic: {0: 5, 9: 6}})
    commit({"unknown": {0: 1}})
    commit({topic: {0: 5, 9: 6}, "unknown": {0: 1}})
    commit({})
    commit({topic: {0: 7}}, metadata="x" * 4096)
    commit({topic: {0: 8, 1: 8}}, metadata="x" * 4097)
    commit({topic: {0: -5}}, metadata=None)
    commit({topic: {0: 9}}, generation=1)
    commit({topic: {0: 9}}, generation=1, member="m")
    pair.send(lambda side: committing(f"{group}.other", {topic: {0: 1}}, ids=side.memory["ids"], generation=1), version)
    pair.send(lambda side: committing("", {topic: {0: 1}}, ids=side.memory["ids"]), version)
    join(pair, group, 9)
    pair.send(
        lambda side: committing(
            group, {topic: {0: 9}}, ids=side.memory["ids"], generation=1, member=side.memory["member"]
        ),
        version,
    )
    pair.send(lambda side: syncing(side, group), 5)
    for generation, member in ((1, None), (2, None), (-1, None), (1, "m"), (-1, "")):
        pair.send(
            lambda side, g=generation, m=member: committing(  # type: ignore[misc]
                group,
                {topic: {0: 9}},
                ids=side.memory["ids"],
                generation=g,
                member=side.memory["member"] if m is None else m,
            ),
            version,
        )
    pair.send(fetching({group: None}, 8, {}), 8)


@exchange(OffsetFetchRequest)
def offset_fetch(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    topic, group = pair.create(pair.name("t"), 3), pair.name("g")
    with_ids(pair, topic)
    pair.send(committing(group, {topic: {0: 5, 1: 6}}), 9)

    def fetch(groups: dict[str, dict[str, list[int]] | None]) -> None:
        pair.send(lambda side: fetching(groups, version, side.memory["ids"]), version)

    fetch({group: {topic: [0]}})
    fetch({group: {topic: [2, 1, 9]}})
    fetch({group: {"unknown": [0]}})
    fetch({group: {"unknown": [0], topic: [0]}})
    fetch({group: {}})
    fetch({"nobody": {topic: [0]}})
    fetch({"": {topic: [0]}})
    if version >= 2:
        fetch({"nobody": None})
    if version >= 8:
        fetch({group: {topic: [0]}, "nobody": None, "other": {topic: [1]}})
        fetch({})


@exchange(OffsetDeleteRequest)
def offset_delete(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    topic, group = pair.create(pair.name("t"), 2), pair.name("g")

    def delete(group_id: str, topics: dict[str, list[int]]) -> None:
        request_topics = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
            for name, indexes in topics.items()
        ]
        pair.send(OffsetDeleteRequest(group_id, request_topics), version)

    delete(group, {topic: [0]})
    delete("", {topic: [0]})
    pair.send(committing(group, {topic: {0: 5, 1: 6}}), 9)
    delete(group, {topic: [0]})
    delete(group, {topic: [0, 9]})
    delete(group, {"unknown": [0]})
    delete(group, {})
    pair.send(fetching({group: {topic: [0, 1]}}, 8, {}), 8)
    join(pair, group, 9)
    delete(group, {topic: [0, 1], "t": [0]})
    pair.send(fetching({group: {topic: [0, 1]}}, 8, {}), 8)


@exchange(DeleteGroupsRequest)
def delete_groups(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    topic, group = pair.create(pair.name("t")), pair.name("g")
    for name in (group, "", "nobody"):
        pair.send(DeleteGroupsRequest([name]), version)
    pair.send(DeleteGroupsRequest([]), version)
    pair.send(committing(group, {topic: {0: 5}}), 9)
    pair.send(DeleteGroupsRequest([group]), version)
    pair.send(fetching({group: {topic: [0]}}, 8, {}), 8)
    join(pair, group, 9)
    pair.send(DeleteGroupsRequest([group, group]), version)
    pair.send(lambda side: syncing(side, group), 5)
    pair.send(DeleteGroupsRequest([group]), version)


@exchange(DescribeGroupsRequest)
def describe_groups(pair: Pair, version: int) -> None:
    await_coordinator(pair)
    group = pair.name("g")

    def describe(*groups: str, operations: bool = False) -> None:
        pair.send(DescribeGroupsRequest(list(groups), operations if version >= 3 else False), version)

    describe()
    describe(group)
    describe("")
    join(pair, group, 9)
    describe(group)
    pair.send(lambda side: syncing(side, group), 5)
    describe(group, "nobody")
    describe(group, operations=True)


@exchange(TxnOffsetCommitRequest, versions=range(3, 6, 2))
def pending_offsets_of_a_deleted_topic(pair: Pair, version: int) -> None:
    """They do not come back with the commit: a new topic of that name is read from its beginning."""
    coordinator(pair)
    await_coordinator(pair)
    topic, other_topic, group = pair.create(pair.name("t")), pair.create(pair.name("kept")), pair.name("g")
    producer = Producer(pair)
    producer.init()
    if version < 5:
        producer.add_offsets(3, group)
    producer.commit_offsets(version, group, topic, 500)
    producer.commit_offsets(version, group, other_topic, 7)
    pair.send(DeleteTopicsRequest([DeleteTopicState(topic)], [topic], 10_000), 6)
    pair.await_gone(topic)
    pair.create(topic)
    producer.end(5 if version >= 5 else 3)
    for stable in (True, False):
        request_group = OffsetFetchRequestGroup(
            group, topics=[OffsetFetchRequestTopics(n, ZERO_UUID, [0]) for n in (topic, other_topic)]
        )
        pair.send(OffsetFetchRequest(groups=[request_group], require_stable=stable), 9)
    pair.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), 9)
