"""The periodic duties of a node, on its loop: retention, checkpoints, flushing, expiry, compaction, moves.

Each duty is a short synchronous call on the log store; blocking calls (fsync) run in a thread. A duty that fails is
logged and retried at its next turn; it never stops other duties.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import KafkaError

if TYPE_CHECKING:
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock, Timers
    from ottla.log.cleaner import Cleaner
    from ottla.log.compaction_output import BlockingSync
    from ottla.log.erasure import Eraser
    from ottla.log.log_store import LogStore
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.replicas import Replicas

log = get_logger(__name__)

DELETED_FILES_CHECK_MS = 1_000
UNMADE_CHECK_MS = 1_000
"""How often a replica that had no room on the disk is tried again."""
ROLLED_SEGMENTS_CHECK_MS = 5_000
MOVE_CHUNK_BYTES = 1024 * 1024
MOVE_PAUSE_MS = 10
SYNC_THREADS = 4
MOVE_SYNC_BYTES = 8 * 1024 * 1024
"""A copy is synced in a thread after so many bytes: the promotion, on the loop, has no more than that to sync."""
ERASURE_CHECK_MS = 1_000
CLEAN_SLICE_MS = 2.0
CLEAN_PAUSE_MS = 4.0
LOGS_IN_A_TURN = 100
"""Of a duty over all logs, in one turn of the loop."""
_FOREVER_MS = 2**53


class Housekeeping:
    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        logs: LogStore,
        replicas: Replicas,
        cleaner: Cleaner,
        eraser: Eraser | None = None,
        *,
        timers: Timers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._logs = logs
        self._replicas = replicas
        self._cleaner = cleaner
        self._eraser = eraser
        self._timers = timers
        self._tasks: list[asyncio.Task[None]] = []
        self._syncs = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="disk-sync")
        """Only syncs run in these threads, so that a wait for the network never delays a sync."""
        self._may_move = 0.0
        self._move_checked_ms = clock.monotonic_ms()

    def follow(self, config: BrokerConfig) -> None:
        """Settings of the cluster have changed; intervals stay as they were at the start, as Kafka's do."""
        self._config = config
        self._cleaner.dedupe_buffer_bytes = config.log_cleaner_dedupe_buffer_size
        self._cleaner.load_factor = config.log_cleaner_io_buffer_load_factor

    def start(self) -> None:
        config = self._config
        self._every(config.log_retention_check_interval_ms, self._retain, first_ms=config.log_initial_task_delay_ms)
        logs = self._logs
        self._every(
            config.log_flush_offset_checkpoint_interval_ms, partial(logs.checkpoint_recovery_points, sync=False)
        )
        # Synced, because only this checkpoint holds the effect of DeleteRecords; written only after a change.
        self._every(config.log_flush_start_offset_checkpoint_interval_ms, logs.checkpoint_log_start_offsets)
        self._every(
            config.replica_high_watermark_checkpoint_interval_ms, partial(logs.checkpoint_high_watermarks, sync=False)
        )
        self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._every(DELETED_FILES_CHECK_MS, self._remove_files)
        self._every(UNMADE_CHECK_MS, self._replicas.create_missing_logs)
        self._every(config.log_flush_scheduler_interval_ms, self._flush_due)
        self._every(ROLLED_SEGMENTS_CHECK_MS, self._flush_rolled)
        self._every(MOVE_PAUSE_MS, self._move, idle_ms=DELETED_FILES_CHECK_MS)
        if config.log_cleaner_enable or self._eraser is not None:
            self._tasks.append(asyncio.ensure_future(self._clean()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._syncs.shutdown(wait=False)
        self._tasks.clear()

    def _every(
        self,
        interval_ms: int,
        duty: Callable[[], object],
        *,
        first_ms: int | None = None,
        idle_ms: int | None = None,
    ) -> None:
        """Run `duty` at an interval. With `idle_ms`, that interval applies after a run that returned a false value,
        which means that there was nothing to do.
        """
        if interval_ms < _FOREVER_MS:
            self._tasks.append(asyncio.ensure_future(self._repeat(interval_ms, duty, first_ms, idle_ms)))

    async def _repeat(
        self, interval_ms: int, duty: Callable[[], object], first_ms: int | None, idle_ms: int | None
    ) -> None:
        await self._pause(interval_ms if first_ms is None else min(first_ms, interval_ms))
        while True:
            busy: object = None
            try:
                busy = duty()
                if isinstance(busy, Awaitable):
                    busy = await busy
            except (KafkaError, OSError) as error:
                log.error("duty.failed", duty=getattr(duty, "__name__", str(duty)), reason=str(error))
            except Exception as error:  # a bug in one turn must not end retention or checkpoints for good
                log.error("duty.failed", duty=getattr(duty, "__name__", str(duty)), exc_info=error)
            pause_ms = idle_ms if idle_ms is not None and not busy else interval_ms
            await self._pause(pause_ms)

    async def _pause(self, pause_ms: float) -> None:
        """A pause by the node's timers, which follow the clock that duties go by."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._timers.call_later(pause_ms, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    # Duties

    async def _retain(self) -> None:
        await log_by_log(self._logs.delete_old_segments(self._clock.time_ms()))

    async def _expire_producers(self) -> None:
        await log_by_log(self._logs.remove_expired_producers(self._clock.time_ms()))

    async def _remove_files(self) -> None:
        """In a thread, one file after the other: removing a large segment can take long."""
        loop = asyncio.get_running_loop()
        for removal in self._logs.removals(self._clock.time_ms()):
            await loop.run_in_executor(None, removal)

    async def _move(self) -> bool:
        """Copy a piece of the moves, as large as replica.alter.log.dirs.io.max.bytes.per.second allows."""
        now_ms = self._clock.monotonic_ms()
        rate = self._config.replica_alter_log_dirs_io_max_bytes_per_second / 1000
        self._may_move = min(self._may_move + rate * (now_ms - self._move_checked_ms), MOVE_CHUNK_BYTES)
        self._move_checked_ms = now_ms
        moves = self._logs.moves
        before = moves.copied_bytes
        left = self._replicas.moves.advance(max(int(self._may_move), 0))
        self._may_move -= moves.copied_bytes - before
        for future in moves.futures_to_sync(MOVE_SYNC_BYTES):
            await self._flush(future, None)
        return left

    async def _flush_due(self) -> None:
        for partition_log in self._logs.logs_to_flush(self._clock.time_ms()):
            await self._flush(partition_log, None)

    async def _flush_rolled(self) -> None:
        """A segment that was rolled away is synced, so that a crash need not recover it."""
        for partition_log in self._logs.online_logs():
            base_offset = partition_log.active_segment.base_offset
            if partition_log.recovery_point < base_offset:
                await self._flush(partition_log, base_offset)

    async def _flush(self, partition_log: PartitionLog, up_to: int | None) -> None:
        """A log that cannot be synced now is retried at the next turn, and does not delay other logs."""
        try:
            plan = partition_log.prepare_flush(up_to)
        except KafkaError as error:
            log.warning("flush.refused", partition=str(partition_log.topic_partition), reason=error.message)
            return
        if plan is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._syncs, plan.sync)
        except OSError as error:
            partition_log.flush_failed(error)
            return
        partition_log.flushed(plan, self._clock.time_ms())

    # Compaction

    async def _clean(self) -> None:
        """Erase records that are due, then clean log by log, the dirtiest first; pause if there is nothing to do."""
        pause_ms = self._config.log_cleaner_backoff_ms
        if self._eraser is not None:
            pause_ms = min(pause_ms, ERASURE_CHECK_MS)
        while True:
            worked = False
            if self._eraser is not None:
                worked = await self._attempt(self._eraser.erase_next)
            if self._config.log_cleaner_enable and not worked:
                worked = await self._attempt(self._cleaner.clean_next)
            await (asyncio.sleep(0) if worked else self._pause(pause_ms))

    async def _attempt(self, work: Callable[[], Generator[BlockingSync | None, None, object]]) -> bool:
        try:
            return await self._in_slices(work())
        except (KafkaError, OSError) as error:
            log.error("cleaning.failed", reason=str(error))
        except Exception as error:  # as above: a damaged key or log must not end cleaning for other logs
            log.error("cleaning.failed", exc_info=error)
        return False

    async def _in_slices(self, steps: Generator[BlockingSync | None, None, object]) -> bool:
        """Work in slices of 2 ms with pauses twice as long, so that produce and fetch continue in between."""
        loop = asyncio.get_running_loop()
        clock, moved = self._clock, self._cleaner.moved
        began = clock.monotonic_ms()
        start_ms, start_bytes = began, moved.bytes
        worked = False
        for sync in steps:
            worked = True
            if sync is not None:
                try:
                    await loop.run_in_executor(self._syncs, sync)
                except OSError as error:
                    steps.throw(error)  # the steps handle the failure of their disk
            elif clock.monotonic_ms() - began >= CLEAN_SLICE_MS:
                rate = max(self._config.log_cleaner_io_max_bytes_per_second, 1.0)
                due_ms = start_ms + (moved.bytes - start_bytes) * 1000 / rate
                await asyncio.sleep(max(CLEAN_PAUSE_MS, due_ms - clock.monotonic_ms()) / 1000)
                began = clock.monotonic_ms()
        return worked


async def log_by_log(steps: Iterable[object]) -> None:
    """Work on all logs, a step for each log. Produce and fetch continue in between."""
    for number, _ in enumerate(steps, 1):
        if number % LOGS_IN_A_TURN == 0:
            await asyncio.sleep(0)
