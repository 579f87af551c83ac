"""Planted bugs in groups: owners, committed offsets, expiry, share groups, offsets of transactions.

Each is one mistake. The members of `ottla.simulation.group_work` and their checkers must notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.share import partition as share_partition
from ottla.coordinator.groups import expiry, machine, offset_store, offsets, transactional_offsets
from ottla.coordinator.groups.classic import group as classic_group
from ottla.coordinator.groups.classic import membership, rebalance, sync
from ottla.coordinator.groups.consumer import fencing, heartbeat, reconciliation, service
from ottla.coordinator.groups.consumer import group as consumer_group
from ottla.coordinator.share import in_flight, runs
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition

Mutation = Callable[[pytest.MonkeyPatch], None]
GROUP_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    GROUP_MUTATIONS[plant.__name__] = plant
    return plant


# Owners


@mutation
def gives_a_partition_to_two_owners(patch: pytest.MonkeyPatch) -> None:
    """A new owner does not wait until the old owner has given up the partition.

    The product's own error line is silent here: the checker of the simulator must find the bug without it.
    """
    patch.setattr(consumer_group, "log", SimpleNamespace(error=lambda *_, **__: None))
    patch.setattr(reconciliation.ConsumerReconciliation, "_is_free", lambda *_: True)


@mutation
def gives_away_what_a_static_member_left_for_a_while(patch: pytest.MonkeyPatch) -> None:
    original = heartbeat._absent

    def absent(member: Any) -> Any:
        away = original(member)
        away.assigned.clear()
        return away

    patch.setattr(heartbeat, "_absent", absent)


@mutation
def never_fences_a_silent_member(patch: pytest.MonkeyPatch) -> None:
    def fence_silent(_self: Any, *_: Any) -> Any:
        return fencing.Draft().decide()

    patch.setattr(fencing.ConsumerFencing, "fence_silent", fence_silent)


@mutation
def does_not_see_topics_that_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service.ConsumerGroups, "on_metadata", lambda *_: None)


@mutation
def forgets_growth_before_its_append(patch: pytest.MonkeyPatch) -> None:
    """`refresh_due` is cleared by the decision, and the log may refuse the records."""
    original = service.ConsumerRebalance._update_epoch

    def update_epoch(self: Any, group: Any, *arguments: Any, **options: Any) -> Any:
        epoch = original(self, group, *arguments, **options)
        group.refreshed()
        return epoch

    patch.setattr(service.ConsumerRebalance, "_update_epoch", update_epoch)


@mutation
def never_ends_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    """A join phase waits for members that have died."""
    patch.setattr(rebalance.Rebalance, "complete_if_joined", lambda *_: None)
    patch.setattr(rebalance.Rebalance, "_schedule_join_end", lambda *_, **__: None)


@mutation
def accepts_heartbeats_of_old_generations(patch: pytest.MonkeyPatch) -> None:
    def beat(self: Any, request: Any) -> ErrorCode:
        group = self._context.classic(request.group_id)
        if group is not None and request.member_id in group.members:
            self._rebalance.touch(group, group.members[request.member_id])
        return ErrorCode.NONE

    patch.setattr(membership.ClassicMembership, "_beat", beat)


@mutation
def gives_every_member_the_assignment_of_the_leader(patch: pytest.MonkeyPatch) -> None:
    original = sync.Sync._assign

    def assign(self: Any, group: Any, request: Any, draft: Any) -> None:
        leader_part = next(item.assignment for item in request.assignments if item.member_id == request.member_id)
        for item in request.assignments:
            item.assignment = leader_part
        original(self, group, request, draft)

    patch.setattr(sync.Sync, "_assign", assign)


# Committed offsets


@mutation
def accepts_commits_of_fenced_members(patch: pytest.MonkeyPatch) -> None:
    for kind in (consumer_group.ConsumerGroup, classic_group.ClassicGroup):
        patch.setattr(kind, "validate_offset_commit", lambda *_, **__: None)


@mutation
def forgets_offsets_when_a_coordinator_loads(patch: pytest.MonkeyPatch) -> None:
    original = machine.GroupMachine._replay_offset

    def replay_offset(self: Any, offset: int, producer_id: Any, record: Any) -> None:
        if self._live or record.value is None or offset % 2:
            original(self, offset, producer_id, record)

    patch.setattr(machine.GroupMachine, "_replay_offset", replay_offset)


@mutation
def answers_with_offsets_of_a_deleted_namesake(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets, "_other_topic", lambda *_: False)
    patch.setattr(expiry.GroupExpiry, "note_deleted", lambda *_: None)


@mutation
def keeps_pending_offsets_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    """An open transaction has offsets for a topic that is deleted; its commit makes them offsets of a namesake."""
    value = transactional_offsets.offset_commit_value
    patch.setattr(transactional_offsets, "offset_commit_value", lambda *row: value(*row[:-1], ZERO_UUID))

    def offsets_of(self: Any, names: Any) -> Any:
        for group_id, topics in self._committed.items():
            for name in topics.keys() & names.keys():
                for partition, offset in topics[name].items():
                    yield group_id, TopicPartition(name, partition), offset

    patch.setattr(offset_store.OffsetStore, "offsets_of", offsets_of)


@mutation
def expires_offsets_of_active_groups(patch: pytest.MonkeyPatch) -> None:
    for kind in (consumer_group.ConsumerGroup, classic_group.ClassicGroup):
        patch.setattr(kind, "is_subscribed_to", lambda *_: False)


@mutation
def never_expires_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expiry.GroupExpiry, "_is_expired", lambda *_: False)


@mutation
def commits_offsets_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    original = offset_store.OffsetStore.end_transaction

    def end_transaction(self: Any, producer_id: Any, *, committed: bool) -> None:
        del committed
        original(self, producer_id, committed=True)

    patch.setattr(offset_store.OffsetStore, "end_transaction", end_transaction)


@mutation
def hides_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """A reader that asks for stable offsets gets the offset before the transaction."""
    patch.setattr(offset_store.OffsetStore, "is_pending", lambda *_: False)


# Share groups


@mutation
def delivers_accepted_records_again(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(in_flight._STATE_AFTER, in_flight.ACCEPT, runs.RecordState.AVAILABLE)


@mutation
def answers_an_accept_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The write is lost with its leader, and the next leader delivers the record again."""
    original = share_partition.SharePartition._settle

    def settle(self: Any, change: Any, done: Any) -> None:
        done(None)
        if self.leader_epoch % 2:
            original(self, change, lambda _error: None)
        elif self.in_flight is not None:
            self.in_flight.commit(change)

    patch.setattr(share_partition.SharePartition, "_settle", settle)


@mutation
def never_ends_a_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_partition.SharePartition, "_watch_locks", lambda _self: None)
    patch.setattr(share_partition.SharePartition, "release", lambda *_: None)


@mutation
def gives_a_locked_record_to_a_second_member(patch: pytest.MonkeyPatch) -> None:
    free = {runs.RecordState.AVAILABLE, runs.RecordState.ACQUIRED}
    patch.setattr(runs.Run, "is_free", property(lambda run: run.state in free and run.change is None))


@mutation
def does_not_count_released_deliveries(patch: pytest.MonkeyPatch) -> None:
    def returned(run: Any, _limits: Any) -> runs.RecordState:
        run.delivery_count = max(run.delivery_count - 1, 0)
        return runs.RecordState.AVAILABLE

    patch.setattr(in_flight, "_returned", returned)


@mutation
def locks_records_for_a_tenth_of_the_time(patch: pytest.MonkeyPatch) -> None:
    original = share_partition.SharePartition.lock_until_ms

    def lock_until_ms(self: Any) -> float:
        now_ms: float = self._broker.clock.monotonic_ms()
        return now_ms + (original(self) - now_ms) / 10

    patch.setattr(share_partition.SharePartition, "lock_until_ms", lock_until_ms)
