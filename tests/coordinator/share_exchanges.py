"""Share groups (KIP-932): heartbeats, the state of share-partitions, fetches with acknowledgements, offsets; and what
each refuses. Every group sets its assignment interval to 0, so that no answer depends on how fast the servers are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.model.ids import Uuid
from ottla.protocol.generated import delete_share_group_state_request as delete_state
from ottla.protocol.generated import initialize_share_group_state_request as initialize_state
from ottla.protocol.generated import read_share_group_state_request as read_state
from ottla.protocol.generated import read_share_group_state_summary_request as summary_state
from ottla.protocol.generated import share_acknowledge_request as acknowledging
from ottla.protocol.generated import share_fetch_request as fetching
from ottla.protocol.generated import write_share_group_state_request as write_state
from ottla.protocol.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.generated.delete_groups_request import DeleteGroupsRequest
from ottla.protocol.generated.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.generated.describe_groups_request import DescribeGroupsRequest
from ottla.protocol.generated.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.generated.share_group_describe_request import ShareGroupDescribeRequest
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.coordinator.consumer_exchanges import beating as consumer_beating
from tests.coordinator.consumer_exchanges import configure, topic_on
from tests.coordinator.exchanges import exchange
from tests.coordinator.group_exchanges import await_coordinator, joining
from tests.coordinator.offset_exchanges import committing
from tests.interop.differential.batches import batch, produce
from tests.interop.differential.pair import Pair, Request, Side

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
OTHER = "BBBBBBBBBBBBBBBBBBBBBB"
NOWHERE = Uuid(bytes(range(100, 116)))
NOT_YET = (14, 15, 16)
"""The errors of a coordinator whose partition has just been elected and may still be loading."""
UNTIL_THERE_MS = 20_000
"""For a fetch that finds records, where Apache Kafka must read the state of the partition first."""
SOON_MS = 3_000
"""For a fetch of released records: they are there a moment after the answer to the release.

Not longer, because Apache Kafka does not always wake a waiting fetch.
"""


def beating(
    group: str, epoch: int, topics: list[str] | None = None, member: str = MEMBER, rack: str | None = None
) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group, member, epoch, rack, topics)


def fetch(
    group: str,
    epoch: int,
    topic: str | None = None,
    partitions: tuple[int, ...] = (0,),
    acknowledge: list[tuple[int, int, list[int]]] | None = None,
    member: str | None = MEMBER,
    forget: str | None = None,
    **options: Any,
) -> Request:
    def build(side: Side) -> fetching.ShareFetchRequest:
        batches = [fetching.AcknowledgementBatch(*batch) for batch in acknowledge or []]
        rows = [fetching.FetchPartition(index, 0, batches) for index in partitions]
        topics = [] if topic is None else [fetching.FetchTopic(side.topic_id(topic), rows)]
        request = fetching.ShareFetchRequest(group, member, epoch, 300, 1, 1 << 20, 100, 100, topics=topics)
        if forget is not None:
            request.forgotten_topics_data = [fetching.ForgottenTopic(side.topic_id(forget), list(partitions))]
        for name, value in options.items():
            setattr(request, name, value)
        return request

    return build


def acknowledge(
    group: str,
    epoch: int,
    topic: str | None,
    batches: list[tuple[int, int, list[int]]],
    *,
    partition: int = 0,
    member: str | None = MEMBER,
    renew: bool = False,
) -> Request:
    def build(side: Side) -> acknowledging.ShareAcknowledgeRequest:
        rows = [acknowledging.AcknowledgementBatch(*batch) for batch in batches]
        topics = []
        if topic is not None:
            partitions = [acknowledging.AcknowledgePartition(partition, rows)]
            topics = [acknowledging.AcknowledgeTopic(side.topic_id(topic), partitions)]
        return acknowledging.ShareAcknowledgeRequest(group, member, epoch, renew, topics)

    return build


def group_on(pair: Pair, suffix: str = "g", **settings: str) -> str:
    await_coordinator(pair)
    group = pair.name(suffix)
    configure(pair, group, **{"share_assignment_interval_ms": "0", "share_auto_offset_reset": "earliest", **settings})
    return group


def join(pair: Pair, group: str, topics: list[str], member: str = MEMBER) -> None:
    """Until the member has partitions: their state is initialized behind the first answers."""
    pair.send(beating(group, 0, topics, member), 1)
    for side in pair.sides:
        _beat_until_assigned(side, group, member)


def _beat_until_assigned(side: Side, group: str, member: str) -> None:
    epoch = side.last.member_epoch
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = side.ask(beating(group, epoch, None, member), 1)
        epoch = answer.member_epoch
        side.memory[f"{group}/{member}"] = epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{side.name} never assigned anything")


def own_epoch(group: str, member: str = MEMBER) -> Callable[[Side], int]:
    return lambda side: int(side.memory[f"{group}/{member}"])


def fill(pair: Pair, topic: str, count: int, partition: int = 0) -> None:
    pair.send(produce(topic, batch(*[str(i).encode() for i in range(count)]), version=9, partition=partition), 9)


@exchange(ShareGroupHeartbeatRequest)
def share_heartbeat_refused(pair: Pair, version: int) -> None:
    group = group_on(pair)
    topic = topic_on(pair, pair.name("t"), 1)
    for request in (
        beating("", 0, [topic]),
        beating(" ", 0, [topic]),
        beating(group, 0, [topic], member=""),
        beating(group, 0, [topic], member="m" * 37),
        beating(group, 0, [topic], rack=""),
        beating(group, 0),
        beating(group, 0, []),
        beating(group, -2),
        beating(group, 1),
        beating(group, -1),
        beating(group, 5, [topic]),
    ):
        pair.send(request, version)
    join(pair, group, [topic])
    pair.send(beating(group, 1000), version)
    pair.send(beating(group, 1, member=OTHER), version)
    pair.send(beating(group, -1, member=OTHER), version)
    # Other kinds of groups cannot take its place, nor it theirs.
    pair.send(joining(group), 9)
    pair.send(consumer_beating(group, "m", 0, [topic]), 1)
    pair.send(committing(group, {topic: {0: 5}}), 8)
    pair.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, None)]), 9)
    pair.send(DescribeGroupsRequest([group], False), 6)
    pair.send(DeleteGroupsRequest([group]), 2)
    pair.send(beating(group, -1), version)
    taken = pair.name("taken")
    configure(pair, taken, consumer_assignment_interval_ms="0")
    pair.send(consumer_beating(taken, "m", 0, [topic]), 1)
    pair.send(beating(taken, 0, [topic]), version)
    pair.send(beating(taken, -1), version)


@exchange(ShareGroupHeartbeatRequest)
def share_life(pair: Pair, version: int) -> None:
    group = group_on(pair)
    topic = topic_on(pair, pair.name("t"), 2)
    join(pair, group, [topic])
    pair.send(lambda side: beating(group, own_epoch(group)(side)), version)
    pair.send(lambda side: beating(group, own_epoch(group)(side), [topic]), version)
    pair.send(lambda side: beating(group, 0, [topic]), version)
    pair.send(ShareGroupDescribeRequest([group, pair.name("none"), ""], False), version)
    pair.send(ShareGroupDescribeRequest([group], True), version)
    pair.send(ListGroupsRequest([], ["share"]), 5)
    pair.send(ListGroupsRequest(["empty"], ["share"]), 5)
    pair.send(beating(group, -1), version)
    pair.send(ShareGroupDescribeRequest([group], False), version)
    pair.send(DeleteGroupsRequest([group, pair.name("none")]), 2)
    pair.send(ShareGroupDescribeRequest([group], False), version)


def _state(topic: str | Uuid, side: Side) -> Uuid:
    return side.topic_id(topic) if isinstance(topic, str) else topic


@exchange(read_state.ReadShareGroupStateRequest)
def share_state(pair: Pair, version: int) -> None:
    """The five requests that leaders and group coordinators send."""
    await_coordinator(pair)
    topic = topic_on(pair, pair.name("t"), 2)
    group = pair.name("g")
    find = FindCoordinatorRequest("", 2)

    def key(side: Side) -> FindCoordinatorRequest:
        from ottla.model.ids import uuid_to_str

        find.coordinator_keys = [f"{group}:{uuid_to_str(side.topic_id(topic))}:0"]
        return find

    pair.wait(key, 6, lambda answer: answer.coordinators[0].error_code == 0)
    pair.send(key, 6)
    for bad in ("", "g", "g:x:0", f"{group}::0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"):
        pair.send(FindCoordinatorRequest("", 2, [bad]), 6)

    def initialize(where: str | Uuid, index: int, epoch: int, start: int, name: str = group) -> Request:
        row = initialize_state.PartitionData(index, epoch, start)
        return lambda side: initialize_state.InitializeShareGroupStateRequest(
            name, [initialize_state.InitializeStateData(_state(where, side), [row])]
        )

    def read(where: str | Uuid, index: int, epoch: int) -> Request:
        row = read_state.PartitionData(index, epoch)
        return lambda side: read_state.ReadShareGroupStateRequest(
            group, [read_state.ReadStateData(_state(where, side), [row])]
        )

    def summary(where: str | Uuid, index: int) -> Request:
        row = summary_state.PartitionData(index, 0)
        return lambda side: summary_state.ReadShareGroupStateSummaryRequest(
            group, [summary_state.ReadStateSummaryData(_state(where, side), [row])]
        )

    def write(
        index: int, state_epoch: int, leader_epoch: int, start: int, *batches: tuple[int, int, int, int]
    ) -> Request:
        rows = [write_state.StateBatch(*batch) for batch in batches]
        row = write_state.PartitionData(index, state_epoch, leader_epoch, start, 3, rows)
        return lambda side: write_state.WriteShareGroupStateRequest(
            group, [write_state.WriteStateData(side.topic_id(topic), [row])]
        )

    def delete(where: str | Uuid, index: int) -> Request:
        row = delete_state.PartitionData(index)
        return lambda side: delete_state.DeleteShareGroupStateRequest(
            group, [delete_state.DeleteStateData(_state(where, side), [row])]
        )

    pair.wait(summary(topic, 0), 1, lambda answer: answer.results[0].partitions[0].error_code not in NOT_YET)
    for request, at in (
        (read(topic, 0, 0), 0),
        (write(0, 0, 0, 0), 1),
        (summary(topic, 0), 1),
        (delete(topic, 0), 0),
        (initialize(topic, 7, 1, 0), 0),
        (initialize(topic, -1, 1, 0), 0),
        (initialize(NOWHERE, 0, 1, 0), 0),
        (initialize(topic, 0, 1, 0, ""), 0),
        (read(NOWHERE, 0, 0), 0),
        (summary(topic, 9), 1),
        (summary(topic, -1), 0),
        (delete(NOWHERE, 0), 0),
        (delete(topic, -1), 0),
        (initialize_state.InitializeShareGroupStateRequest(group, []), 0),
        (initialize(topic, 0, 3, -1), 0),
        (summary(topic, 0), 0),
        (summary(topic, 0), 1),
        (initialize(topic, 0, 2, 5), 0),
        (read(topic, 0, 4), 0),
        (read(topic, 0, 3), 0),
        (read(topic, 0, -1), 0),
        (write(0, 3, 4, 10, (10, 14, 2, 1), (15, 19, 0, 1)), 1),
        (write(0, 3, 3, 10), 1),
        (write(0, 2, 4, 10), 1),
        (write(0, -1, -1, -1, (12, 17, 0, 2), (18, 18, 4, 2)), 1),
        (read(topic, 0, 4), 0),
        (write(0, 3, 4, 13, (13, 19, 2, 3)), 0),
        (summary(topic, 0), 1),
        (read(topic, 0, 5), 0),
        (initialize(topic, 0, 3, 100), 0),
        (read(topic, 0, 5), 0),
        (delete(topic, 0), 0),
        (read(topic, 0, 5), 0),
        (delete(topic, 0), 0),
    ):
        pair.send(request, at)


@exchange(fetching.ShareFetchRequest)
def share_fetch_refused(pair: Pair, version: int) -> None:
    group = group_on(pair)
    topic = topic_on(pair, pair.name("t"), 1)
    fill(pair, topic, 5)
    for request in (
        fetch(group, 1, topic),
        fetch(group, -1, topic),
        fetch(group, 0, topic, member=""),
        fetch(group, 0, topic, member=None),
        fetch(group, 0, topic, member="m" * 37),
        fetch(group, 0, topic, acknowledge=[(0, 1, [ACCEPT])]),
        lambda _: fetching.ShareFetchRequest(None, MEMBER, 0, 10, 1, 100, 10, 10),
        acknowledge(group, 0, topic, [(0, 1, [ACCEPT])]),
        acknowledge(group, 1, topic, [(0, 1, [ACCEPT])]),
        acknowledge(group, -1, topic, [(0, 1, [ACCEPT])]),
        acknowledge(group, 1, topic, [(0, 1, [ACCEPT])], member=""),
    ):
        pair.send(request, version)
    if version >= 2:
        pair.send(fetch(group, 0, topic, is_renew_ack=True), version)
    join(pair, group, [topic])
    pair.send(fetch(group, 0, topic, (0, 3), max_wait_ms=UNTIL_THERE_MS), version)
    pair.send(fetch(group, 5, topic), version)
    pair.send(fetch(group, 1, topic, max_records=0), version)
    pair.send(fetch(group, 2, topic, max_bytes=0), version)
    pair.send(fetch(group, 3, topic, forget=topic, partitions=(3,)), version)
    for epoch, batches in enumerate(
        (
            [(3, 2, [ACCEPT])],
            [(0, 1, [])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(0, 1, [9])],
            [(0, 1, [-1])],
            [(0, 1, [RENEW])],
            [(2, 4, [ACCEPT]), (0, 1, [ACCEPT])],
            [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
            [(3, 9, [ACCEPT])],
            [(90, 91, [ACCEPT])],
            [],
        ),
        start=4,
    ):
        pair.send(acknowledge(group, epoch, topic, batches), version)
    pair.send(acknowledge(group, 15, topic, [(0, 1, [ACCEPT])], partition=3), version)
    pair.send(acknowledge(group, 16, topic, [(0, 4, [ACCEPT])]), version)
    pair.send(acknowledge(group, 17, topic, [(0, 4, [ACCEPT])]), version)
    pair.send(acknowledge(group, -1, topic, []), version)
    pair.send(acknowledge(group, -1, topic, []), version)


@exchange(fetching.ShareFetchRequest)
def share_deliveries(pair: Pair, version: int) -> None:
    """Acquire, accept, release, reject and come back, with the answers of DescribeShareGroupOffsets."""
    group = group_on(pair, share_delivery_count_limit="2")
    topic = topic_on(pair, pair.name("t"), 1)
    fill(pair, topic, 10)
    join(pair, group, [topic])
    all_offsets = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    pair.send(fetch(group, 0, topic, max_wait_ms=UNTIL_THERE_MS), version)
    pair.send(acknowledge(group, 1, topic, [(0, 3, [ACCEPT]), (4, 7, [RELEASE]), (8, 9, [ACCEPT, REJECT])]), version)
    pair.send(all_offsets, 1)
    pair.send(fetch(group, 2, max_wait_ms=SOON_MS), version)
    pair.send(fetch(group, 3, topic, acknowledge=[(4, 7, [RELEASE])]), version)
    pair.send(fetch(group, 4), version)
    fill(pair, topic, 3)
    pair.send(fetch(group, 5, max_wait_ms=SOON_MS), version)
    pair.send(all_offsets, 1)
    pair.send(all_offsets, 0)
    another = pair.another()
    another.send(fetch(group, 0, topic, member=OTHER), version)
    pair.send(fetch(group, -1, topic, acknowledge=[(10, 10, [ACCEPT])]), version)
    another.send(fetch(group, 1, member=OTHER, max_wait_ms=SOON_MS), version)
    another.send(fetch(group, 2, topic, forget=topic, member=OTHER), version)
    another.check()
    pair.send(all_offsets, 1)


@exchange(DescribeShareGroupOffsetsRequest)
def share_offsets(pair: Pair, version: int) -> None:
    group = group_on(pair)
    topic = topic_on(pair, pair.name("t"), 2)
    other = topic_on(pair, pair.name("other"), 1)
    fill(pair, topic, 10)

    def alter(name: str, offsets: dict[int, int], of: str = group) -> AlterShareGroupOffsetsRequest:
        rows = [AlterShareGroupOffsetsRequestPartition(index, offset) for index, offset in offsets.items()]
        return AlterShareGroupOffsetsRequest(of, [AlterShareGroupOffsetsRequestTopic(name, rows)])

    def delete(name: str, of: str = group) -> DeleteShareGroupOffsetsRequest:
        return DeleteShareGroupOffsetsRequest(of, [DeleteShareGroupOffsetsRequestTopic(name)])

    def describe(*topics: tuple[str, list[int]], of: str = group) -> DescribeShareGroupOffsetsRequest:
        rows = [DescribeShareGroupOffsetsRequestTopic(name, indexes) for name, indexes in topics]
        return DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(of, rows)])

    everything = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    pair.send(everything, version)
    pair.send(describe(), version)
    pair.send(describe((topic, [0, 1]), ("nowhere", [0])), version)
    pair.send(delete(topic), 0)
    pair.send(delete(topic, of=""), 0)
    pair.send(alter(topic, {0: 5}, of=""), 0)
    pair.send(alter("nowhere", {0: 5}), 0)
    pair.send(alter(topic, {0: 5, 7: 1}), 0)
    pair.send(everything, version)
    pair.send(describe((topic, [0, 1]), ("nowhere", [0])), version)
    pair.send(ListGroupsRequest([], ["share"]), 5)
    join(pair, group, [topic])
    pair.send(alter(topic, {0: 1}), 0)
    pair.send(delete(topic), 0)
    pair.send(fetch(group, 0, topic, max_wait_ms=UNTIL_THERE_MS), 2)
    pair.send(acknowledge(group, -1, topic, [(5, 9, [ACCEPT])]), 2)
    pair.send(beating(group, -1), 1)
    pair.send(describe((topic, [0])), version)
    pair.send(alter(topic, {0: 3}), 0)
    pair.send(describe((topic, [0])), version)
    pair.send(delete(other), 0)
    pair.send(delete("nowhere"), 0)
    pair.send(delete(topic), 0)
    pair.send(delete(topic), 0)
    pair.send(everything, version)
    pair.send(DeleteGroupsRequest([group]), 2)
