"""Planted bugs of replication: each is one mistake that somebody could make in a partition, a log or its controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers import replica_fetch
from ottla.controller import brokers, partition_change
from ottla.log import log_store, partition_log
from ottla.model.errors import ErrorCode
from ottla.replication import fetcher, follower_log, leader_state, partition

Mutation = Callable[[pytest.MonkeyPatch], None]
REPLICA_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    REPLICA_MUTATIONS[plant.__name__] = plant
    return plant


@mutation
def acknowledges_what_only_the_leader_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition.Partition, "_commit_state", lambda *_: ErrorCode.NONE)


@mutation
def commits_what_one_follower_has(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Any) -> int:
        return max((f.log_end_offset for f in self.followers.values()), default=-1)

    patch.setattr(leader_state.LeaderState, "committed_offset", committed)


@mutation
def commits_without_enough_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_state.LeaderState, "min_isr", property(lambda _: 1))


@mutation
def shows_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    original = partition_log.PartitionLog.read

    def read(
        self: Any, offset: int, max_bytes: int, *, max_offset: int | None = None, min_one_batch: bool = True
    ) -> Any:
        del max_offset
        return original(self, offset, max_bytes, min_one_batch=min_one_batch)

    patch.setattr(partition_log.PartitionLog, "read", read)


@mutation
def counts_a_proposal_as_answered(patch: pytest.MonkeyPatch) -> None:
    """Whoever is proposed to leave the ISR no longer holds the high watermark back."""
    original = leader_state.LeaderState._propose

    def propose(self: Any, isr: tuple[int, ...]) -> None:
        original(self, isr)
        self.maximal_isr = frozenset(isr)

    patch.setattr(leader_state.LeaderState, "_propose", propose)


@mutation
def truncates_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = follower_log.truncation_offset
    patch.setattr(follower_log, "truncation_offset", lambda *args: max(original(*args) - 20, 0))


@mutation
def does_not_truncate(patch: pytest.MonkeyPatch) -> None:
    def skip(self: Any, epoch: int, end_offset: int, *, leader_epoch: int, now_ms: int) -> None:
        del self, epoch, end_offset, leader_epoch, now_ms

    patch.setattr(partition.Partition, "truncate_by", skip)
    patch.setattr(replica_fetch, "diverging_end", lambda *_: None)


@mutation
def fetches_without_the_epoch_of_the_last_record(patch: pytest.MonkeyPatch) -> None:
    original = fetcher.ReplicaFetcher.request

    def request(self: Any) -> Any:
        found = original(self)
        for topic in found.topics if found is not None else ():
            for item in topic.partitions:
                item.last_fetched_epoch = -1
        return found

    patch.setattr(fetcher.ReplicaFetcher, "request", request)


@mutation
def trusts_a_broker_that_lost_its_power(patch: pytest.MonkeyPatch) -> None:
    """As if every restart came after a clean shutdown (KIP-966 off)."""
    patch.setattr(brokers, "_cleanup_of_old_incarnation", lambda *_: [])


@mutation
def elects_whoever_is_alive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        partition_change.PartitionChange, "_valid_leader", lambda self, replica: self.acceptable_leader(replica)
    )


@mutation
def forgets_its_logs_on_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_store.LogStore, "_load_directory", lambda *_: None)
