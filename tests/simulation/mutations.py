"""Planted bugs: each is one mistake that somebody could make in the quorum or the controller.

A mutation changes the code under simulation in place (by `monkeypatch`, so it is undone); the simulator must notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller import committed, runtime
from ottla.raft import driver, fetch_server, metadata_fetcher, metadata_log, node, replica
from ottla.raft.roles import Candidate, Leader, ballot, observer, prospective, unattached
from ottla.raft.snapshots import SnapshotId
from ottla.raft.transitions import RoleEvent

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


@mutation
def votes_twice(patch: pytest.MonkeyPatch) -> None:
    for module in (unattached, prospective, observer):
        patch.setattr(module, "may_vote_for", lambda _voted, _leader, _candidate, *, up_to_date: up_to_date)


@mutation
def votes_without_a_look_at_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica.Replica, "up_to_date", lambda *_: True)


@mutation
def commits_older_epochs_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Raft's figure 8."""

    def advance(self: Leader, voters: Any, durable: int) -> bool:
        reached = sorted((self._offset(v, durable) for v in voters.voters), reverse=True)[len(voters.voters) // 2]
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    patch.setattr(Leader, "advance", advance)


@mutation
def commits_what_one_replica_has(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leader, voters: Any, durable: int) -> bool:
        reached = max(self._offset(v, durable) for v in voters.voters)
        if reached <= max(self.high_watermark, self.epoch_start_offset):
            return False
        self.high_watermark = reached
        return True

    patch.setattr(Leader, "advance", advance)


@mutation
def elects_with_half_of_the_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ballot.Ballot, "majority", property(lambda self: max(len(self.voters) // 2, 1)))


@mutation
def truncates_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def truncate(self: Any, _epoch: int, end_offset: int) -> None:
        own = self._replica
        own.log.truncate(max(min(end_offset, own.log.end_offset) - 20, own.log.start_offset))
        own.history.truncate(own.log.end_offset)
        own.durable_end_offset = min(own.durable_end_offset, own.log.end_offset)

    patch.setattr(metadata_fetcher.MetadataFetcher, "_truncate", truncate)


@mutation
def does_not_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metadata_fetcher.MetadataFetcher, "_truncate", lambda *_: None)


@mutation
def serves_without_a_look_at_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch_server.FetchServer, "_validate_offset_and_epoch", lambda *_: None)


@mutation
def forgets_to_sync_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metadata_log.MetadataLog, "sync", lambda _: None)


@mutation
def forgets_to_store_the_vote(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica, "store_quorum_state", lambda *_, **__: None)


@mutation
def forgets_the_vote_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node, "load_quorum_state", lambda *_: None)


@mutation
def counts_itself_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Any) -> bool:
        own = self._replica
        role = own.role
        if not isinstance(role, Leader) or not role.advance(own.voters, own.log.end_offset):
            return False
        return bool(own.raise_high_watermark(role.high_watermark))

    patch.setattr(fetch_server.FetchServer, "advance", advance)


@mutation
def fetches_on_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    original = metadata_fetcher.MetadataFetcher.tick

    def tick(self: Any) -> None:
        kept = self._replica.durable_end_offset
        self._replica.durable_end_offset = self._replica.log.end_offset
        original(self)
        self._replica.durable_end_offset = kept

    patch.setattr(metadata_fetcher.MetadataFetcher, "tick", tick)


@mutation
def keeps_its_epoch_when_it_votes(patch: pytest.MonkeyPatch) -> None:
    original = replica.Replica.become_unattached

    def become(self: Any, epoch: int, event: RoleEvent, **more: Any) -> None:
        original(self, epoch if more.get("voted") is None else self.epoch, event, **({} if more.get("voted") else more))

    patch.setattr(replica.Replica, "become_unattached", become)


@mutation
def hands_over_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    original = node.RaftNode.committed

    def handed(self: Any, start: int) -> Any:
        kept = self.replica.high_watermark
        self.replica.high_watermark = self.log.end_offset
        found = list(original(self, start))
        self.replica.high_watermark = kept
        return iter(found)

    patch.setattr(node.RaftNode, "committed", handed)


@mutation
def decides_before_everything_is_replayed(patch: pytest.MonkeyPatch) -> None:
    original = driver.RaftDriver._hand_over

    def hand_over(self: Any) -> None:
        start = self.raft.epoch_start_offset
        if start is not None and self._led_epoch is None:
            self._led_epoch = self.raft.epoch
            self._listener.on_leader()
        original(self)

    patch.setattr(driver.RaftDriver, "_hand_over", hand_over)


@mutation
def answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    original = runtime.ControllerRuntime._append

    def append(self: Any, records: Any, frames: Any, answer: Any, response: Any, *, atomic: bool = True) -> bool:
        appended = original(self, records, frames, None, None, atomic=atomic)
        if answer is not None:
            answer.set_result(response)
        return appended

    patch.setattr(runtime.ControllerRuntime, "_append", append)


@mutation
def names_a_snapshot_one_too_far(patch: pytest.MonkeyPatch) -> None:
    original = node.RaftNode.snapshot_id

    def named(self: Any, last_offset: int) -> SnapshotId:
        found = original(self, last_offset)
        return SnapshotId(found.end_offset + 1, found.epoch)

    patch.setattr(node.RaftNode, "snapshot_id", named)


@mutation
def keeps_the_log_beside_a_fetched_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metadata_log.MetadataLog, "start_over", lambda *_: None)


@mutation
def skips_a_committed_batch(patch: pytest.MonkeyPatch) -> None:
    original = committed.CommittedMetadata.apply

    def apply(self: Any, batch: Any, records: Any = None) -> None:
        if batch.base_offset % 37 or records is not None:
            original(self, batch, records)

    patch.setattr(committed.CommittedMetadata, "apply", apply)


@mutation
def grants_a_second_election_in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    def become(self: Any, event: RoleEvent) -> None:
        own = ballot.Ballot.among(self.voters.ids, self.key.id)
        epoch = self.epoch or 1
        self.become(Candidate(epoch, self.vote_key, own, self.election_deadline()), event)

    patch.setattr(replica.Replica, "become_candidate", become)


@mutation
def believes_more_than_it_has(patch: pytest.MonkeyPatch) -> None:
    """A follower takes the leader's high watermark although its own log ends before it."""

    def follow(self: Any) -> bool:
        return bool(self._replica.raise_high_watermark(self.leader_high_watermark))

    patch.setattr(metadata_fetcher.MetadataFetcher, "follow_high_watermark", follow)
