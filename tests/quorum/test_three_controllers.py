"""Three controllers as real processes: they elect, they survive the death of any one, the log stays one."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from ottla.protocol.generated.vote_request import PartitionData, TopicData, VoteRequest
from tests.quorum.members import caught_up, leader_of, running, static_quorum, until

NOT_CONTROLLER = 41
INVALID_REPLICATION_FACTOR = 38


@pytest.mark.timeout(180)
def test_the_leader_is_killed_three_times_in_turn(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        leader = until(lambda: leader_of(members))
        epoch = leader.describe().leader_epoch
        high_watermark = until(lambda: leader.describe().high_watermark)
        for _ in range(3):
            others = [member for member in members if member is not leader]
            assert leader.create_topic("t") == INVALID_REPLICATION_FACTOR
            assert others[0].create_topic("t") == NOT_CONTROLLER
            leader.end()
            gone, leader = leader, until(lambda others=others: leader_of(others))  # type: ignore[misc]
            view = leader.describe()
            assert view.leader_epoch > epoch
            assert view.high_watermark >= high_watermark
            epoch, high_watermark = view.leader_epoch, view.high_watermark
            gone.start()
            until(lambda gone=gone, leader=leader: caught_up(leader, gone.node_id))  # type: ignore[misc]
        assert len({member.node_id for member in members}) == 3


@pytest.mark.timeout(120)
def test_a_clean_stop_hands_over_and_a_hung_leader_is_replaced(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        leader = until(lambda: leader_of(members))
        others = [member for member in members if member is not leader]
        until(lambda: all(caught_up(leader, member.node_id) for member in others))
        assert leader.end(signal.SIGTERM) == 0
        leader.start()
        second = until(lambda: leader_of(others))
        until(lambda: caught_up(second, leader.node_id))
        second.send(signal.SIGSTOP)
        rest = [member for member in members if member is not second]
        third = until(lambda: leader_of(rest))
        second.send(signal.SIGCONT)
        until(lambda: second.create_topic("t") == NOT_CONTROLLER)
        until(lambda: caught_up(third, second.node_id))


@pytest.mark.timeout(120)
def test_everybody_at_once(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        leader = until(lambda: leader_of(members))
        until(lambda: all(caught_up(leader, member.node_id) for member in members))
        before = leader.describe()
        for member in members:
            member.end()
        for member in members:
            member.start()
        leader = until(lambda: leader_of(members))
        after = until(leader.describe)
        assert after.leader_epoch > before.leader_epoch
        assert after.high_watermark > before.high_watermark


@pytest.mark.timeout(90)
def test_what_does_not_belong_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    # Nobody asks for another election because the machine stood still.
    with running(static_quorum(tmp_path, **{"controller.quorum.fetch.timeout.ms": "60000"})) as members:
        leader = until(lambda: leader_of(members))
        epoch = leader.describe().leader_epoch
        follower = next(member for member in members if member is not leader)

        def vote(cluster_id: str | None, voter_id: int, epoch: int, last_epoch: int = 0) -> VoteRequest:
            asked = PartitionData(0, epoch, 99, last_offset_epoch=last_epoch, last_offset=10**9)
            return VoteRequest(cluster_id, voter_id, [TopicData("__cluster_metadata", [asked])])

        def answer(request: VoteRequest) -> tuple[int, int, bool]:
            response = follower.ask(request)
            if response.error_code:
                return response.error_code, 0, False
            partition = response.topics[0].partitions[0]
            return 0, partition.error_code, partition.vote_granted

        assert answer(vote("other-cluster", follower.node_id, epoch + 5)) == (104, 0, False)
        assert answer(vote(None, 77, epoch + 5)) == (0, 125, False)
        assert answer(vote(None, follower.node_id, 0)) == (0, 42, False)
        assert answer(vote(None, follower.node_id, 1, last_epoch=1)) == (0, 42, False)
        time.sleep(0.5)
        assert leader.describe().leader_epoch == epoch
