"""Planted bugs in what touches data besides replication: deletion, compaction, moves, transactions, offsets.

Each is one mistake of the classes that the last review found. Schedules or seeds must notice it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.transactions import transaction_markers
from ottla.coordinator import runtime
from ottla.log import compaction, directory_checkpoints, future_copy, log_offsets, log_store, producer_state
from ottla.log.aborted_transactions import AbortedTransactions
from ottla.replication import replicas

Mutation = Callable[[pytest.MonkeyPatch], None]
DATA_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    DATA_MUTATIONS[plant.__name__] = plant
    return plant


@mutation
def takes_the_log_of_a_deleted_namesake(patch: pytest.MonkeyPatch) -> None:
    """A topic was deleted and created again while the broker was down: its old log serves the new topic."""
    original = replicas.Replicas._log_of

    def log_of(self: Any, tp: Any, topic: Any, directory_id: Any) -> Any:
        log = self._logs.get(tp)
        return original(self, tp, topic, directory_id) if log is None else log

    patch.setattr(replicas.Replicas, "_log_of", log_of)


@mutation
def forgets_the_start_after_deleted_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_store.LogStore, "checkpoint_log_start_offsets", lambda *_args, **_kwargs: [])


@mutation
def keeps_checkpoints_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    """A recovery point or a cleaner's checkpoint outlives its topic and holds for a namesake."""
    patch.setattr(directory_checkpoints.DirectoryCheckpoints, "forget_absent", lambda *_: None)


@mutation
def does_not_lower_checkpoints_at_a_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(directory_checkpoints.DirectoryCheckpoints, "lower", lambda *_: None)
    original = log_offsets.LogOffsets.truncate_to

    def truncate_to(self: Any, offset: int) -> None:
        points = self.recovery_point, self.cleaned_up_to
        original(self, offset)
        self.recovery_point, self.cleaned_up_to = points

    patch.setattr(log_offsets.LogOffsets, "truncate_to", truncate_to)


@mutation
def compares_a_moved_replica_by_its_end_alone(patch: pytest.MonkeyPatch) -> None:
    def common_end(self: Any) -> int:
        end: int = min(self.future.log_end_offset, self.current.log_end_offset)
        return end

    patch.setattr(future_copy.FutureCopy, "_common_end", common_end)


@mutation
def promotes_a_copy_before_it_has_caught_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(future_copy.FutureCopy, "caught_up", property(lambda self: self.future.log_end_offset > 0))


@mutation
def compacts_the_last_value_away(patch: pytest.MonkeyPatch) -> None:
    """For two keys the map claims a record that is not there."""
    original = compaction._Compaction.rewrite

    def rewrite(self: Any) -> Any:
        for key in (b"k1", b"k2"):
            self._map.put(key, self._map.latest_offset + 1)
        return original(self)

    patch.setattr(compaction._Compaction, "rewrite", rewrite)


@mutation
def appends_a_repeated_batch_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state.ProducerState, "duplicate_of", lambda *_: None)
    patch.setattr(producer_state, "_check_sequence", lambda *_: None)


@mutation
def names_no_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedTransactions, "within", lambda *_: [])


@mutation
def shows_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_offsets.LogOffsets, "last_stable_offset", property(lambda self: self.high_watermark))


@mutation
def aborts_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    """The marker of a commit is that of an abort."""
    original = runtime.append_marker

    def append_marker(partition: Any, end: Any, now_ms: int) -> int:
        return original(partition, end._replace(committed=False), now_ms)

    patch.setattr(runtime, "append_marker", append_marker)
    patch.setattr(transaction_markers, "append_marker", append_marker)


@mutation
def answers_a_coordinator_before_its_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runtime.Shard, "_answer_when_committed", lambda _self, answers: runtime._deliver(answers))
