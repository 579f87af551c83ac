"""Planted bugs that only a fault of one directory, of names, bits or clocks shows, or a check of the disk, the log lines or
the history. `test_fault_schedules.py` has a schedule for each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers import delete_records
from ottla.log import directory_checkpoints, log_flush, log_store, partition_log, validation
from ottla.log.log_directory import LogDirectory
from ottla.replication.replicas import Replicas
from ottla.server.cluster.registration import Registration

Mutation = Callable[[pytest.MonkeyPatch], None]
FAULT_MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    FAULT_MUTATIONS[plant.__name__] = plant
    return plant


@mutation
def goes_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """The sync failed once, and the recovery point moves all the same."""
    original = log_flush.FlushPlan.sync

    def sync(self: Any) -> None:
        with contextlib.suppress(OSError):
            original(self)

    patch.setattr(log_flush.FlushPlan, "sync", sync)


@mutation
def moves_the_recovery_point_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A directory that hangs leaves the sync open for seconds."""
    original = partition_log.PartitionLog.prepare_flush

    def prepare_flush(self: Any, up_to: Any = None) -> Any:
        plan = original(self, up_to)
        if plan is not None:
            self.flushed(plan, 0)
        return plan

    patch.setattr(partition_log.PartitionLog, "prepare_flush", prepare_flush)


@mutation
def lowers_checkpoints_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """A power cut takes the rename back, and the recovery point is above the cut of the log again."""
    original = directory_checkpoints.DirectoryCheckpoints.lower

    def lower(self: Any, partition: Any, offset: int) -> None:
        write = self.write
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self), "write", lambda _self, name, offsets: write(name, offsets, sync=False))
            original(self, partition, offset)

    patch.setattr(directory_checkpoints.DirectoryCheckpoints, "lower", lower)


@mutation
def follows_without_a_look_at_crcs(patch: pytest.MonkeyPatch) -> None:
    """A flipped bit of the leader's disk reaches its followers."""
    patch.setattr(validation, "crc_matches", lambda *_: True)


@mutation
def acknowledges_a_deletion_that_the_disk_refused(patch: pytest.MonkeyPatch) -> None:
    """DeleteRecords on a full directory, as before its mend."""
    patch.setattr(delete_records.Deletion, "refuse", lambda *_: None)


@mutation
def leaves_files_unsynced_at_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_store.LogStore, "_sync", staticmethod(lambda _log, _plan: None))


@mutation
def forgets_to_take_a_failed_directory_offline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDirectory, "fail", lambda *_: None)


@mutation
def waits_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """After a jump back by minutes no heartbeat is due for minutes."""

    async def keep_alive(self: Any) -> None:
        clock, interval_ms = self._node._clock, self._node.config.broker_heartbeat_interval_ms
        due_ms = clock.time_ms() + interval_ms
        while True:
            await asyncio.sleep(interval_ms / 4000)
            if clock.time_ms() >= due_ms:
                due_ms = clock.time_ms() + interval_ms
                await self._beat()

    patch.setattr(Registration, "_keep_alive", keep_alive)


@mutation
def only_logs_a_bug(patch: pytest.MonkeyPatch) -> None:
    """A supervisor keeps the task alive; the cluster goes on."""

    def shrink_isrs(_self: Any) -> None:
        raise KeyError("no such follower")

    patch.setattr(Replicas, "shrink_isrs", shrink_isrs)


@mutation
def leaves_out_a_batch_of_a_read(patch: pytest.MonkeyPatch) -> None:
    """Of consumers only, whose reads name both bounds."""
    original = partition_log.PartitionLog.read

    def read(self: Any, offset: int, max_bytes: int, **options: Any) -> Any:
        end = options.get("max_offset")
        skips = end is not None and "min_one_batch" in options and offset + 8 < end and offset % 5 == 4
        return original(self, offset + 4 if skips else offset, max_bytes, **options)

    patch.setattr(partition_log.PartitionLog, "read", read)
