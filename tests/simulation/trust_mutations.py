"""Planted bugs that revert a mend of the trust review: what was lost, revived or doubled beside the main paths.

Mends that the tables of data, faults and groups revert already stand there; docs/simulation.md has the whole list, and
what the simulator cannot see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers import end_txn, init_producer_id
from ottla.broker.transactions import new_producer_ids
from ottla.coordinator.groups.share import heartbeat as share_heartbeat
from ottla.log import checkpoints, cleaner, epoch_cache, log_directory, moves, promotion, recovery
from ottla.log.file_names import DELETE_DIR_SUFFIX, LEADER_EPOCH_CHECKPOINT
from ottla.log.open_files import OpenFiles
from ottla.model.errors import KafkaError
from ottla.replication import moves as replica_moves
from ottla.server import housekeeping
from ottla.server.cluster import controller_channel

Mutation = Callable[[pytest.MonkeyPatch], None]
TRUST_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    TRUST_MUTATIONS[plant.__name__] = plant
    return plant


@mutation
def gives_every_directory_its_own_descriptors(patch: pytest.MonkeyPatch) -> None:
    """1: an empty pool counted as false, so that each directory made a pool of its own, with the default limit."""
    original = log_directory.LogDirectory.__init__

    def init(self: Any, storage: Any, path: str, *, open_files: Any = None, **options: Any) -> None:
        original(self, storage, path, open_files=open_files or OpenFiles(), **options)

    patch.setattr(log_directory.LogDirectory, "__init__", init)


@mutation
def sends_heartbeats_behind_clients_requests(patch: pytest.MonkeyPatch) -> None:
    """2: one connection to the controller for everything, first in, first out."""
    patch.setattr(controller_channel, "_kind", lambda *_: controller_channel._FORWARDING)


@mutation
def promotes_a_copy_whose_name_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """4: a power cut takes the name of the copy back, after the source is gone."""
    original = promotion.promote

    def promote(copy: Any, replaced: Any) -> None:
        storage = copy.log_dir.storage
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(storage, "sync_dir", lambda _path: None)
            original(copy, replaced)

    patch.setattr(moves, "promote", promote)


@mutation
def renames_the_served_log_before_its_copy(patch: pytest.MonkeyPatch) -> None:
    """4: between the two renames no folder has the name of the partition; a directory may refuse the second."""
    original = moves.LogMoves._name

    def name(self: Any, future: Any, replaced: Any, now_ms: int) -> None:
        if future is not replaced:
            self._discarded._rename(replaced, DELETE_DIR_SUFFIX, now_ms)
        original(self, future, replaced, now_ms)

    patch.setattr(moves.LogMoves, "_name", name)


@mutation
def forgets_moves_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """4: a start finds the log and its copy, and nobody goes on with the copy."""
    patch.setattr(replica_moves.ReplicaMoves, "resume", lambda *_: None)


@mutation
def accepts_a_torn_last_number(patch: pytest.MonkeyPatch) -> None:
    """6: `9 18` of `9 180`."""
    original = checkpoints.decode_lines

    def decode_lines(path: str, data: bytes, fields: int) -> list[list[str]]:
        return original(path, data if not data or data.endswith(b"\n") else data + b"\n", fields)

    patch.setattr(checkpoints, "decode_lines", decode_lines)
    patch.setattr(epoch_cache, "decode_lines", decode_lines)


@mutation
def takes_an_empty_epoch_file_for_a_whole_one(patch: pytest.MonkeyPatch) -> None:
    """6: a file without bytes is what a power cut leaves."""
    original = epoch_cache.read_epoch_cache

    def read(storage: Any, directory: str) -> epoch_cache.EpochCache:
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        if storage.exists(path) and not storage.read_bytes(path):
            return epoch_cache.EpochCache(storage, directory)
        return original(storage, directory)

    patch.setattr(recovery, "read_epoch_cache", read)


@mutation
def keeps_epochs_that_the_disk_refused(patch: pytest.MonkeyPatch) -> None:
    """6: the append fails, the cache has the epoch, and the file never gets the epoch."""

    def assign_and_write(self: Any, starts: Any) -> None:
        for epoch, offset in starts:
            if epoch >= 0:
                self.assign(epoch, offset)
        try:
            self.write_changes()
        except OSError:
            self.unwritten = False
            raise

    patch.setattr(epoch_cache.EpochCache, "assign_and_write", assign_and_write)


@mutation
def lets_one_full_directory_stop_compaction(patch: pytest.MonkeyPatch) -> None:
    """7: the log whose disk refused is the dirtiest, for ever."""

    def choose(self: Any) -> Any:
        now_ms = self._clock.time_ms()
        candidates = [self._candidate(log, now_ms) for log in self._logs.online_logs()]
        worthy = [candidate for candidate in candidates if candidate is not None and candidate.worth_it]
        return max(worthy, key=lambda candidate: candidate.cleanable_ratio, default=None)

    patch.setattr(cleaner.Cleaner, "choose", choose)


@mutation
def stops_flushing_at_the_first_refusal(patch: pytest.MonkeyPatch) -> None:
    """7: logs behind the log whose directory is full are not flushed."""

    async def flush_due(self: Any) -> None:
        for log in self._logs.logs_to_flush(self._clock.time_ms()):
            log.prepare_flush(None)
            await self._flush(log, None)

    patch.setattr(housekeeping.Housekeeping, "_flush_due", flush_due)


@mutation
def forgets_growth_of_shared_topics_before_its_append(patch: pytest.MonkeyPatch) -> None:
    """10: `refresh_due` of a share group is cleared by the decision, and the log may refuse the records."""
    original = share_heartbeat.ShareHeartbeat._update_epoch

    def update_epoch(self: Any, group: Any, *arguments: Any, **options: Any) -> Any:
        answer = original(self, group, *arguments, **options)
        group.refreshed()
        return answer

    patch.setattr(share_heartbeat.ShareHeartbeat, "_update_epoch", update_epoch)


@mutation
def fails_when_no_producer_id_comes(patch: pytest.MonkeyPatch) -> None:
    """13: the wait for a block of producer ids ends in an error that nobody answers."""

    def with_producer_ids(producer_ids: Any, attempt: Any, refused: Any) -> Any:
        async def again() -> Any:
            try:
                await producer_ids.refill()
            except KafkaError as error:
                raise RuntimeError("no producer id") from error
            answer = attempt(refused)
            return await answer if isinstance(answer, new_producer_ids.Deferred) else answer

        needed = False

        def refuse(error: KafkaError) -> Any:
            nonlocal needed
            needed = isinstance(error, new_producer_ids.ProducerIdNeeded)
            return refused(error)

        answer = attempt(refuse)
        return again() if needed else answer

    for module in (init_producer_id, end_txn):
        patch.setattr(module, "with_producer_ids", with_producer_ids)


@mutation
def asks_for_a_block_for_every_producer(patch: pytest.MonkeyPatch) -> None:
    """13: a producer whose transactional id is known waits for a block, too; while the controller is away, for ever."""
    original = new_producer_ids.with_producer_ids

    def with_producer_ids(producer_ids: Any, attempt: Any, refused: Any) -> Any:
        async def first() -> Any:
            try:
                await producer_ids.refill()
            except KafkaError as error:
                return refused(error)
            answer = original(producer_ids, attempt, refused)
            return await answer if hasattr(answer, "__await__") else answer

        return first() if producer_ids.take() is None else original(producer_ids, attempt, refused)

    patch.setattr(init_producer_id, "with_producer_ids", with_producer_ids)
