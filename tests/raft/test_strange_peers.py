"""Messages that no correct node sends, or that a newer release may send: the replica refuses them and continues."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.raft.test_node import DIRECTORY
from tests.robustness.node_requests import Facts, plausible

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID
from ottla.protocol.api import request_class, response_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated import begin_quorum_epoch_request as begin_messages
from ottla.protocol.generated import end_quorum_epoch_request as end_messages
from ottla.protocol.generated import fetch_response as fetched_messages
from ottla.protocol.generated import fetch_snapshot_response as snapshot_messages
from ottla.protocol.generated import vote_request as vote_messages
from ottla.protocol.generated.fetch_request import FetchRequest
from ottla.protocol.generated.fetch_snapshot_request import FetchSnapshotRequest
from ottla.protocol.generated.vote_request import VoteRequest
from ottla.protocol.generated.vote_response import VoteResponse
from ottla.protocol.records import ControlType, SimpleRecord, build_batch, control_key
from ottla.raft.config import RaftConfig
from ottla.raft.node import RaftNode
from ottla.raft.outbound import Outbound
from ottla.raft.roles import Follower, Unattached
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.disk import DiskStorage

RAFT_APIS = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
VOTERS = VoterSet(tuple(Voter(i, ZERO_UUID, (VoterEndpoint("CONTROLLER", "localhost", i),)) for i in (1, 2, 3)))
ALONE = VoterSet(VOTERS.voters[:1])
LARGEST_EPOCH = 2**31 - 1
UNKNOWN_CODE = 9999


class ManualClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_ms(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now)


class UnsyncedStorage(DiskStorage):
    """Thousands of votes: their order on disk is the matter of other tests."""

    def write_atomic(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)


def start(path: Path, voters: VoterSet = VOTERS) -> tuple[RaftNode, ManualClock]:
    clock = ManualClock()
    config = RaftConfig(
        node_id=1, directory_id=DIRECTORY, cluster_id="c", static_voters=voters, endpoints=voters.voters[0].endpoints
    )
    node = RaftNode(UnsyncedStorage(), str(path / "__cluster_metadata-0"), clock, config)
    node.start()
    return node, clock


def ask(node: RaftNode, request: Any) -> Any:
    answers: list[Any] = []
    node.receive(request, request.MAX_VERSION, answers.append)
    return answers[0].topics[0].partitions[0] if answers[0].topics else answers[0]


def begin(leader_id: int, epoch: int) -> Any:
    partition = begin_messages.PartitionData(0, ZERO_UUID, leader_id, epoch)
    topics = [begin_messages.TopicData(METADATA_TOPIC, [partition])]
    endpoints = [begin_messages.LeaderEndpoint("CONTROLLER", "localhost", 9)]
    return begin_messages.BeginQuorumEpochRequest("c", 1, topics, endpoints)


def end(leader_id: int, epoch: int) -> Any:
    topics = [end_messages.TopicData(METADATA_TOPIC, [end_messages.PartitionData(0, leader_id, epoch)])]
    endpoints = [end_messages.LeaderEndpoint("CONTROLLER", "localhost", 9)]
    return end_messages.EndQuorumEpochRequest("c", topics, endpoints)


def vote(epoch: int) -> Any:
    partition = vote_messages.PartitionData(0, epoch, 2, ZERO_UUID, ZERO_UUID, 0, 0, False)
    return VoteRequest("c", 1, [vote_messages.TopicData(METADATA_TOPIC, [partition])])


def waiting(node: RaftNode, kind: type[Any]) -> Outbound:
    node.tick()
    return next(outbound for outbound in node.ready() if isinstance(outbound.request, kind))


def fetched(epoch: int, leader_id: int, records: bytes = b"") -> Any:
    partition = fetched_messages.PartitionData(
        0, 0, 0, current_leader=fetched_messages.LeaderIdAndEpoch(leader_id, epoch), records=records
    )
    topic = fetched_messages.FetchableTopicResponse(METADATA_TOPIC, partitions=[partition])
    return fetched_messages.FetchResponse(responses=[topic])


@pytest.mark.parametrize("request_of", [begin, end])
def test_a_second_leader_of_an_epoch_is_refused(tmp_path: Path, request_of: Any) -> None:
    node, _ = start(tmp_path)
    assert ask(node, begin(2, 5)).error_code == 0
    assert ask(node, request_of(3, 5)).error_code == ErrorCode.INVALID_REQUEST
    assert (type(node.role), node.leader_id, node.epoch) == (Follower, 2, 5)


def test_a_response_with_a_second_leader_does_not_stop_the_replica(tmp_path: Path) -> None:
    """The replica stored a liar as leader. Each restart would read the liar's id again and stop again."""
    node, clock = start(tmp_path)
    assert ask(node, begin(7, 5)).error_code == 0
    node.close()
    node, clock = start(tmp_path)
    assert isinstance(node.role, Unattached)
    node.respond(waiting(node, FetchRequest), fetched(5, 2))
    assert node.role.leader_id == 7
    clock.now += 60_000
    node.tick()


@pytest.mark.parametrize("request_of", [begin, end])
@pytest.mark.parametrize("leader_id", [-1, -5])
def test_a_leader_has_a_node_id(tmp_path: Path, request_of: Any, leader_id: int) -> None:
    node, _ = start(tmp_path)
    assert ask(node, request_of(leader_id, 5)).error_code == ErrorCode.INVALID_REQUEST
    assert node.epoch == 0


@pytest.mark.parametrize("request_of", [vote, lambda epoch: begin(2, epoch), lambda epoch: end(2, epoch)])
def test_an_epoch_that_no_election_reaches_is_refused(tmp_path: Path, request_of: Any) -> None:
    """An only voter that adopts the largest epoch cannot lead again, and cannot start again."""
    node, _ = start(tmp_path, ALONE)
    assert ask(node, request_of(LARGEST_EPOCH)).error_code == ErrorCode.INVALID_REQUEST
    assert node.epoch == 1
    node.close()
    start(tmp_path, ALONE)[0].close()


def test_an_epoch_out_of_reach_in_a_response_is_ignored(tmp_path: Path) -> None:
    node, clock = start(tmp_path)
    node.respond(waiting(node, FetchRequest), fetched(LARGEST_EPOCH, 2))
    assert node.epoch == 0
    clock.now += 50
    node.respond(waiting(node, FetchRequest), fetched(4, 2))
    assert node.epoch == 4


def test_an_error_code_of_a_newer_release_does_not_stop_the_replica(tmp_path: Path) -> None:
    node, clock = start(tmp_path)
    response = fetched(0, -1)
    response.error_code = UNKNOWN_CODE
    node.respond(waiting(node, FetchRequest), response)
    clock.now += 60_000
    node.respond(waiting(node, VoteRequest), VoteResponse(error_code=UNKNOWN_CODE))
    assert node.epoch == 0


def test_a_damaged_control_record_is_not_appended(tmp_path: Path) -> None:
    """A log with such a record could not be read at the next start."""
    node, _ = start(tmp_path)
    assert ask(node, begin(2, 5)).error_code == 0
    record = SimpleRecord(1, control_key(ControlType.KRAFT_VOTERS), b"\xff\xff\xff")
    batch = bytes(build_batch([record], base_offset=0, leader_epoch=5, control=True))
    node.respond(waiting(node, FetchRequest), fetched(5, 2, batch))
    assert node.end_offset == 0
    node.close()
    start(tmp_path)[0].close()


@pytest.mark.parametrize("lie", ["truncation", "snapshot"])
def test_committed_records_stay_when_the_leader_lost_them(tmp_path: Path, lie: str) -> None:
    """Apache Kafka 4.3.1 ends the process here. The replica keeps its records and fetches from the next leader."""
    node, clock = start(tmp_path)
    assert ask(node, begin(2, 5)).error_code == 0
    records = build_batch([SimpleRecord(1, None, b"x")] * 10, base_offset=0, leader_epoch=5)
    first = fetched(5, 2, bytes(records))
    first.responses[0].partitions[0].high_watermark = 10
    node.respond(waiting(node, FetchRequest), first)
    node.sync()
    node.flushed(10)
    assert (node.end_offset, node.high_watermark) == (10, 10)
    lost = fetched(5, 2)
    if lie == "truncation":
        lost.responses[0].partitions[0].diverging_epoch = fetched_messages.EpochEndOffset(5, 3)
    else:
        lost.responses[0].partitions[0].snapshot_id = fetched_messages.SnapshotId(3, 5)
    node.respond(waiting(node, FetchRequest), lost)
    if lie == "snapshot":
        partition = snapshot_messages.PartitionSnapshot(
            snapshot_id=snapshot_messages.SnapshotId(3, 5),
            current_leader=snapshot_messages.LeaderIdAndEpoch(2, 5),
            size=1,
            unaligned_records=b"x",
        )
        topics = [snapshot_messages.TopicSnapshot(METADATA_TOPIC, [partition])]
        node.respond(waiting(node, FetchSnapshotRequest), snapshot_messages.FetchSnapshotResponse(topics=topics))
    assert (node.end_offset, node.high_watermark) == (10, 10)
    clock.now += 1000
    assert waiting(node, FetchRequest).request.topics[0].partitions[0].fetch_offset == 10
    assert ask(node, begin(3, 6)).error_code == 0
    more = fetched(6, 3, bytes(build_batch([SimpleRecord(1, None, b"y")], base_offset=10, leader_epoch=6)))
    node.respond(waiting(node, FetchRequest), more)
    assert node.end_offset == 11
    node.close()


@pytest.mark.parametrize("seed", range(12))
def test_plausible_lies(tmp_path: Path, seed: int) -> None:
    """Requests and responses from a liar: nothing stops the replica, and the files stay readable."""
    random = Random(seed)
    voters = random.choice([VOTERS, ALONE])
    node, clock = start(tmp_path, voters)
    sent: list[Outbound] = []
    for _ in range(120):
        clock.now += random.choice([0, 1, 50, 500, 1500, 3000])
        node.tick()
        end_offset = node.unflushed()
        if end_offset is not None:
            node.sync()
            node.flushed(end_offset)
        sent = [*sent, *node.ready()][-10:]
        facts = Facts(cluster_id="c", epoch=node.epoch, end_offset=node.end_offset, node_ids=(1, 2, 3))
        if random.random() < 0.5 or not sent:
            kind = request_class(random.choice(RAFT_APIS))
            version = random.randint(kind.MIN_VERSION, kind.MAX_VERSION)
            node.receive(plausible(random, kind, version, facts), version, lambda answer: None)
            continue
        outbound = sent.pop(random.randrange(len(sent)))
        answer_kind = response_class(outbound.request.API_KEY)
        answer = plausible(random, answer_kind, answer_kind.MAX_VERSION, facts)
        node.respond(outbound, answer if random.random() < 0.85 else None)
    node.close()
    start(tmp_path, voters)[0].close()
