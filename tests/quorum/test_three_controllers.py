"""Three controllers as real processes: elections, the death of each member, and a log that stays the same on all."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from ottla.protocol.generated.vote_request import PartitionData, TopicData, VoteRequest
from tests.quorum.members import UNHURRIED, active_of, caught_up, leader_of, running, static_quorum, until, view_of


@pytest.mark.timeout(180)
def test_the_leader_is_killed_three_times_in_turn(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        _, before = until(lambda: view_of(members))
        for _ in range(3):
            leader = until(lambda: active_of(members))
            leader.end()
            _, view = until(lambda: view_of(members))
            assert view.leader_epoch > before.leader_epoch
            assert view.high_watermark >= before.high_watermark
            before = view
            leader.start()
            until(lambda: caught_up(members))
        assert len({member.node_id for member in members}) == 3


@pytest.mark.timeout(180)
def test_a_clean_stop_hands_over_and_a_hung_leader_is_replaced(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        first, before = until(lambda: caught_up(members))
        assert first.end(signal.SIGTERM) == 0
        first.start()
        second, view = until(lambda: caught_up(members))
        assert view.leader_epoch > before.leader_epoch
        second.send(signal.SIGSTOP)
        _, after = until(lambda: view_of([member for member in members if member is not second]))
        assert after.leader_epoch > view.leader_epoch
        second.send(signal.SIGCONT)
        until(lambda: active_of(members))
        until(lambda: caught_up(members))


@pytest.mark.timeout(120)
def test_everybody_at_once(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path)) as members:
        _, before = until(lambda: caught_up(members))
        for member in members:
            member.end()
        for member in members:
            member.start()
        _, after = until(lambda: view_of(members))
        assert after.leader_epoch > before.leader_epoch
        assert after.high_watermark > before.high_watermark


@pytest.mark.timeout(90)
def test_what_does_not_belong_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with running(static_quorum(tmp_path, **UNHURRIED)) as members:
        leader = until(lambda: leader_of(members))
        epoch = until(leader.describe).leader_epoch
        follower = next(member for member in members if member is not leader)

        def vote(cluster_id: str | None, voter_id: int, epoch: int, last_epoch: int = 0) -> VoteRequest:
            partition = PartitionData(0, epoch, 99, last_offset_epoch=last_epoch, last_offset=10**9)
            return VoteRequest(cluster_id, voter_id, [TopicData("__cluster_metadata", [partition])])

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
        assert until(leader.describe).leader_epoch == epoch
