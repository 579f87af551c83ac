"""Replication among brokers with virtual time: see `virtual_cluster`."""

from __future__ import annotations

import errno
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ottla.log.epoch_cache import EpochCache
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.config_record import ConfigRecord
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.partition_change_record import PartitionChangeRecord
from tests.replication.virtual_cluster import VirtualCluster


class Result:
    def __init__(self, answer: Any) -> None:
        self.code: int | None = None
        self.offset = -1
        if hasattr(answer, "then"):
            answer.then(self._done)
        else:
            self._done(answer)

    def _done(self, response: Any) -> None:
        partition = response.responses[0].partition_responses[0]
        self.code, self.offset = partition.error_code, partition.base_offset

    @property
    def acked(self) -> bool:
        return self.code == 0


def started(tmp_path: Path, **options: Any) -> VirtualCluster:
    cluster = VirtualCluster(tmp_path, **options)
    brokers = cluster.state.image.brokers
    cluster.run_until(lambda: len(brokers) == len(cluster.nodes) and all(not b.fenced for b in brokers.values()))
    return cluster


def with_topic(cluster: VirtualCluster, **configs: str) -> None:
    cluster.create_topic("t", **configs)
    cluster.run_until(lambda: all("t" in n.replicas.by_name for n in cluster.nodes.values()))


def test_acks_all_waits_for_every_replica_in_sync(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    result = Result(leader.produce("t", b"x"))
    assert result.code is None
    cluster.run_until(lambda: result.acked)
    ends = {n.id: n.replicas.get("t", 0).log.log_end_offset for n in cluster.nodes.values()}
    assert set(ends.values()) == {1}


def test_a_waiter_is_called_once_although_the_response_of_another_waiter_appends(tmp_path: Path) -> None:
    """A connection whose batch is acknowledged appends its next batch in the same call (simulator, seed 94)."""
    cluster = started(tmp_path)
    cluster.create_topic("t", factor=1)
    leader = cluster.nodes[cluster.leader("t")]
    cluster.run_until(lambda: "t" in leader.replicas.by_name)
    partition = leader.replicas.get("t", 0)
    codes: list[tuple[str, int]] = []

    def append_next(code: ErrorCode) -> None:
        codes.append(("first", code))
        leader.produce("t", b"next")

    partition.when_committed(1, append_next)
    partition.when_committed(1, lambda code: codes.append(("second", code)))
    leader.produce("t", b"x")
    assert sorted(codes) == [("first", 0), ("second", 0)]
    assert partition.log.high_watermark == 2


def test_followers_learn_the_high_watermark_soon(tmp_path: Path) -> None:
    """Not only with the next records or after replica.fetch.wait.max.ms (500 ms)."""
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    for number in range(1, 6):
        result = Result(leader.produce("t", b"x"))
        cluster.run_until(lambda result=result: result.acked)
        cluster.run_until(
            lambda number=number: all(n.replicas.get("t", 0).high_watermark == number for n in cluster.nodes.values()),
            100,
        )
        cluster.time.advance(2_000)


def test_a_follower_that_lags_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster, min_insync_replicas="2")
    leader = cluster.nodes[cluster.leader("t")]
    follower = next(n for n in cluster.nodes.values() if n is not leader)
    # Slow only in fetching: its heartbeats go on.
    fetcher = follower.replicas.fetchers.by_source[leader.id]
    request, fetcher.request = fetcher.request, lambda: None
    result = Result(leader.produce("t", b"x", timeout_ms=120_000))
    cluster.time.advance(20_000)
    assert result.code is None
    cluster.run_until(lambda: cluster.isr("t") == {1, 2, 3} - {follower.id}, 40_000)
    cluster.run_until(lambda: result.acked)
    fetcher.request = request
    cluster.run_until(lambda: cluster.isr("t") == {1, 2, 3})


def test_below_min_isr_nothing_is_acked_or_committed(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster, min_insync_replicas="2")
    leader = cluster.nodes[cluster.leader("t")]
    first = Result(leader.produce("t", b"first"))
    cluster.run_until(lambda: first.acked)
    for node in cluster.nodes.values():
        if node is not leader:
            node.crash()
    waiting = Result(leader.produce("t", b"second", timeout_ms=60_000))
    cluster.run_until(lambda: cluster.isr("t") == {leader.id})
    cluster.time.advance(1_000)
    refused = Result(leader.produce("t", b"third"))
    assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert waiting.code is None
    assert leader.replicas.get("t", 0).high_watermark == 1
    unacked = Result(leader.produce("t", b"fourth", acks=1))
    assert unacked.acked
    assert leader.replicas.get("t", 0).high_watermark == 1
    for node in cluster.nodes.values():
        if node is not leader:
            node.start()
    cluster.run_until(lambda: waiting.acked)


def test_a_deposed_leader_drops_what_was_not_committed(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster, min_insync_replicas="2")
    former_leader = cluster.nodes[cluster.leader("t")]
    good = Result(former_leader.produce("t", b"good"))
    cluster.run_until(lambda: good.acked)
    cluster.cut.add(former_leader.id)
    lost = Result(former_leader.produce("t", b"lost", timeout_ms=120_000))
    also = Result(former_leader.produce("t", b"lost too", acks=1))
    assert also.acked
    cluster.run_until(lambda: cluster.leader("t") != former_leader.id)
    new_leader = cluster.nodes[cluster.leader("t")]
    cluster.run_until(lambda: new_leader.replicas.get("t", 0).is_leader)
    committed = Result(new_leader.produce("t", b"kept"))
    cluster.run_until(lambda: committed.acked)
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.isr("t") == {1, 2, 3})
    assert lost.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    contents = {n.id: n.bytes_below("t", 2) for n in cluster.nodes.values()}
    assert len(set(contents.values())) == 1
    assert b"lost" not in contents[former_leader.id]
    assert b"kept" in contents[former_leader.id]


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 1), (-3, 0), (0, 0)])
def test_a_new_leader_does_not_tell_an_earlier_end_than_the_one_before(
    tmp_path: Path, timestamp: int, offset: int
) -> None:
    """KIP-207: followers hear of the high watermark later than clients, and not at all of a leader that dies."""
    from ottla.broker.handlers import list_offsets
    from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    cluster = started(tmp_path)
    with_topic(cluster)
    former_leader = cluster.nodes[cluster.leader("t")]
    result = Result(former_leader.produce("t", b"x"))
    cluster.run_until(lambda: result.acked)
    former_leader.crash()
    alive = [node for node in cluster.nodes.values() if node is not former_leader]
    catch_up = {node.id: node._catch_up_now for node in alive}
    for node in alive:
        node._catch_up_now = lambda: None  # type: ignore[method-assign]
    cluster.run_until(lambda: cluster.leader("t") != former_leader.id)
    new_leader = cluster.nodes[cluster.leader("t")]
    catch_up[new_leader.id]()  # the other one, which would bring the high watermark forward, has not heard of it yet
    partition = new_leader.replicas.get("t", 0)
    assert partition.is_leader
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)

    def ask(version: int) -> tuple[int, int]:
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = new_leader.handle(list_offsets, request, version).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert ask(11) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    if timestamp != -3:  # asked for since version 7 only
        assert ask(4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    for node in alive:
        node._catch_up_now = catch_up[node.id]  # type: ignore[method-assign]
    cluster.run_until(lambda: partition.high_watermark == 1)
    assert ask(11) == (0, offset)


@pytest.mark.parametrize("idle_neighbour", [False, True])
def test_followers_that_hear_of_a_leader_before_it_does_ask_again_soon(tmp_path: Path, idle_neighbour: bool) -> None:
    """Not after replica.fetch.backoff.ms (1 s), nor behind the long poll of a partition that has nothing new."""
    cluster = started(tmp_path)
    with_topic(cluster)
    former_leader = cluster.nodes[cluster.leader("t")]
    new_leader, other = (node for node in cluster.nodes.values() if node is not former_leader)
    if idle_neighbour:
        cluster.create_topic("idle", factor=3)
        move_leader(cluster, "idle", new_leader.id)
        cluster.run_until(lambda: all("idle" in n.replicas.by_name for n in cluster.nodes.values()))
        cluster.time.advance(3_000)
    catch_up, new_leader._catch_up_now = new_leader._catch_up_now, lambda: None  # type: ignore[method-assign]
    move_leader(cluster, "t", new_leader.id)
    cluster.run_until(lambda: all(n.replicas.get("t", 0).leader_id == new_leader.id for n in (former_leader, other)))
    cluster.time.advance(100)
    new_leader._catch_up_now = catch_up  # type: ignore[method-assign]
    cluster.run_until(lambda: new_leader.replicas.get("t", 0).is_leader)
    result = Result(new_leader.produce("t", b"x"))
    cluster.run_until(lambda: result.acked, 300)


def test_a_leader_that_never_hears_of_it_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster)
    former_leader = cluster.nodes[cluster.leader("t")]
    new_leader, other = (node for node in cluster.nodes.values() if node is not former_leader)
    new_leader._catch_up_now = lambda: None  # type: ignore[method-assign]
    move_leader(cluster, "t", new_leader.id)
    cluster.run_until(lambda: other.replicas.get("t", 0).leader_id == new_leader.id)
    fetcher = other.replicas.fetchers.by_source[new_leader.id]
    request_times: list[float] = []
    request = fetcher.request

    def counted() -> Any:
        next_request = request()
        if next_request is not None and next_request.topics:
            request_times.append(cluster.time.now)
        return next_request

    fetcher.request = counted  # type: ignore[method-assign]
    cluster.time.advance(10_000)
    assert 12 <= len(request_times) <= 20, "at first often, then every replica.fetch.backoff.ms"
    assert request_times[-1] - request_times[-2] >= 1_000


def move_leader(cluster: VirtualCluster, topic: str, leader: int) -> None:
    topic_image = cluster.state.image.topics_by_name[topic]
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=topic_image.id, leader=leader)])


def test_delete_records_reaches_every_replica(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    results = [Result(leader.produce("t", b"%d" % i)) for i in range(10)]
    cluster.run_until(lambda: all(r.acked for r in results))
    answers: list[Any] = []
    answer = leader.delete_records("t", 4)
    answer.then(answers.append) if hasattr(answer, "then") else answers.append(answer)
    cluster.run_until(lambda: bool(answers))
    assert answers[0].topics[0].partitions[0].low_watermark == 4
    assert {n.replicas.get("t", 0).log.log_start_offset for n in cluster.nodes.values()} == {4}


def test_delete_records_is_refused_when_it_fails_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint of epochs is written before that of the starts, which then skips the failed directory."""
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    results = [Result(leader.produce("t", b"%d" % i)) for i in range(10)]
    cluster.run_until(lambda: all(r.acked for r in results))
    epochs, write = leader.replicas.get("t", 0).log.epochs, EpochCache.write

    def failing(self: EpochCache) -> None:
        if self is epochs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write(self)

    monkeypatch.setattr(EpochCache, "write", failing)
    result = leader.delete_records("t", 4).topics[0].partitions[0]
    assert (ErrorCode(result.error_code), result.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    from ottla.broker.handlers import fetch
    from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic

    cluster = started(tmp_path, racks=True)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    near = next(n for n in cluster.nodes.values() if n is not leader)
    result = Result(leader.produce("t", b"x"))
    cluster.run_until(lambda: result.acked)
    cluster.run_until(lambda: near.replicas.get("t", 0).high_watermark == 1)

    def fetched(node: Any, rack: str) -> Any:
        topic_id = node.publisher.image.topics_by_name["t"].id
        topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0, -1, 0, -1, -1, 1000)])]
        request = FetchRequest(max_bytes=1000, min_bytes=1, topics=topics, rack_id=rack, session_epoch=-1)
        return node.handle(fetch, request).responses[0].partitions[0]

    cluster.time.advance(1000)
    assert fetched(leader, near.rack).preferred_read_replica == near.id
    assert fetched(leader, leader.rack).preferred_read_replica == -1
    read = fetched(near, near.rack)
    assert read.error_code == 0
    assert b"x" in read.records


@pytest.mark.parametrize("case", ["stranger", "stale epoch", "no epoch", "not a replica"])
def test_a_made_up_replica_fetch_changes_nothing(tmp_path: Path, case: str) -> None:
    from ottla.broker.handlers import fetch
    from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

    cluster = started(tmp_path)
    cluster.create_topic("t", factor=2)
    cluster.run_until(lambda: sum("t" in n.replicas.by_name for n in cluster.nodes.values()) == 2)
    leader = cluster.nodes[cluster.leader("t")]
    partition = leader.replicas.get("t", 0)
    follower = next(r for r in partition.replicas if r != leader.id)
    outsider = next(i for i in cluster.nodes if i not in partition.replicas)
    epochs = {i: b.epoch for i, b in cluster.state.image.brokers.items()}
    replica_id, epoch, expected = {
        "stranger": (77, 5, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        "stale epoch": (follower, epochs[follower] - 1, ErrorCode.STALE_BROKER_EPOCH),
        "no epoch": (follower, -1, ErrorCode.STALE_BROKER_EPOCH),
        "not a replica": (outsider, epochs[outsider], ErrorCode.UNKNOWN_LEADER_EPOCH),
    }[case]
    cluster.cut.add(follower)
    result = Result(leader.produce("t", b"x"))
    assert result.code is None
    topics = [FetchTopic(topic_id=partition.topic_id, partitions=[FetchPartition(0, 0, 1, 0, 0, 1000)])]
    request = FetchRequest(
        replica_state=ReplicaState(replica_id, epoch), max_bytes=1000, topics=topics, session_epoch=-1
    )
    response = leader.handle(fetch, request)
    code = response.error_code or response.responses[0].partitions[0].error_code
    assert code == expected
    assert partition.high_watermark == 0
    assert result.code is None


@pytest.mark.parametrize("seed", range(6))
def test_random_faults_lose_nothing_that_was_acked(tmp_path: Path, seed: int) -> None:
    cluster = started(tmp_path, seed=seed)
    with_topic(cluster, min_insync_replicas="2")
    chance = cluster.random
    results: list[tuple[bytes, Result]] = []
    for number in range(150):
        event = chance.random()
        node = cluster.nodes[chance.randint(1, 3)]
        if event < 0.06 and sum(n.down for n in cluster.nodes.values()) == 0:
            node.crash()
        elif event < 0.12:
            for down in [n for n in cluster.nodes.values() if n.down]:
                down.start()
        elif event < 0.16 and not cluster.cut:
            cluster.cut.add(node.id)
        elif event < 0.25:
            cluster.cut.clear()
        else:
            leader = cluster.nodes.get(cluster.leader("t"))
            at = leader if leader is not None and chance.random() < 0.8 else node
            if not at.down and "t" in at.publisher.image.topics_by_name:
                value = b"<%d>" % number
                results.append((value, Result(at.produce("t", value, timeout_ms=5_000))))
        cluster.time.advance(chance.choice([1, 5, 50, 500, 3_000]))
        for member in cluster.nodes.values():
            replica = None if member.down else member.replicas.by_name.get("t", {}).get(0)
            assert replica is None or replica.log.high_watermark <= replica.log.log_end_offset
    cluster.cut.clear()
    for node in cluster.nodes.values():
        if node.down:
            node.start()
    cluster.run_until(lambda: cluster.isr("t") == {1, 2, 3} and all_caught_up(cluster), 200_000)
    contents = {n.id: n.bytes_below("t", n.replicas.get("t", 0).high_watermark) for n in cluster.nodes.values()}
    assert len(set(contents.values())) == 1
    acked = [value for value, result in results if result.acked]
    assert len(acked) > 10
    assert [value for value in acked if contents[1].count(value) != 1] == []


def all_caught_up(cluster: VirtualCluster) -> bool:
    partitions = [n.replicas.get("t", 0) for n in cluster.nodes.values()]
    ends = {p.log.log_end_offset for p in partitions}
    return len(ends) == 1 and {p.log.high_watermark for p in partitions} == ends


def hold_proposals(node: Any) -> list[Any]:
    """Keep a leader's proposals from the controller."""
    proposals: list[Any] = []
    node.context.propose = proposals.append
    return proposals


def test_who_is_being_taken_out_still_counts_until_the_controller_says_so(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    proposals = hold_proposals(leader)
    lagging = next(n for n in cluster.nodes.values() if n is not leader)
    lagging.replicas.fetchers.by_source[leader.id].request = lambda: None
    result = Result(leader.produce("t", b"x", timeout_ms=600_000))
    cluster.run_until(lambda: bool(proposals))
    second = Result(leader.produce("t", b"y", timeout_ms=600_000))
    cluster.time.advance(5_000)
    partition = leader.replicas.get("t", 0)
    assert partition.leader_state is not None
    proposal = partition.leader_state.pending
    assert proposal is not None
    assert lagging.id not in proposal.isr
    assert second.code is None
    assert result.code is None, "the controller may have refused, and a leader elected from the old ISR lacks this"
    partition.isr_altered(proposal, proposal.isr, partition.leader_epoch, partition.partition_epoch + 1)
    assert result.acked
    assert second.acked


def test_a_follower_joins_only_with_everything_committed(tmp_path: Path) -> None:
    cluster = started(tmp_path)
    with_topic(cluster)
    leader = cluster.nodes[cluster.leader("t")]
    partition = leader.replicas.get("t", 0)
    results = [Result(leader.produce("t", b"x")) for _ in range(3)]
    cluster.run_until(lambda: all(r.acked for r in results))
    proposals = hold_proposals(leader)
    leader_state, outsider = partition.leader_state, next(i for i in cluster.nodes if i != leader.id)
    assert leader_state is not None
    partition.isr = tuple(i for i in partition.isr if i != outsider)
    leader_state.committed_changed()
    epoch = cluster.state.image.brokers[outsider].epoch
    now = cluster.time.now
    partition.follower_fetched(outsider, epoch, 2, 0, now)
    assert not proposals
    leader_state.epoch_start_offset = 4
    partition.follower_fetched(outsider, epoch, 3, 0, now)
    assert not proposals
    leader_state.epoch_start_offset = 3
    partition.follower_fetched(outsider, epoch, 3, 0, now)
    assert proposals
    assert leader_state.maximal_isr == {1, 2, 3}


def test_a_snapshot_brings_the_settings_of_topics_and_takes_deleted_ones(tmp_path: Path) -> None:
    """A broker that was away for long gets an image in the place of the records."""
    cluster = started(tmp_path)
    with_topic(cluster)
    cluster.create_topic("gone")
    node = cluster.nodes[1]
    cluster.run_until(lambda: "gone" in node.replicas.by_name)
    cluster.cut.add(node.id)
    cluster.append([ConfigRecord(RESOURCE_TOPIC, "t", "max.message.bytes", "1234")])
    cluster.submit(DeleteTopicsRequest(topics=[DeleteTopicState("gone")]))
    deleted_topics: list[str] = []
    node.publisher.subscribe(
        lambda delta, _: deleted_topics.extend(topic.name for topic in delta.topics_deleted.values())
    )
    node.publisher.load(deepcopy(cluster.state.image), len(cluster.records) - 1, 1)
    assert node.replicas.get("t", 0).log.config.max_message_bytes == 1234
    assert "gone" not in node.replicas.by_name
    assert deleted_topics == ["gone"]
