"""The moves of this node's replicas between its log directories (AlterReplicaLogDirs, KIP-113 and KIP-858).

When a copy has caught up, the controller first records its directory; then the copy is promoted. In between the metadata
is ahead of the disk. A move that ends there returns the assignment to the source directory, even to a failed directory:
the controller then moves the leadership for the right directory. A full disk only delays a move.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.env.seams import Clock
    from ottla.log.log_store import LogStore
    from ottla.log.partition_log import PartitionLog
    from ottla.replication.directories import DirectoryAssignments
    from ottla.replication.partition import Partition

log = get_logger(__name__)

FULL_DISK_PAUSE_MS = 1_000
LAST_PIECE_BYTES = 1024 * 1024
TURN_MS = 5.0
"""The time that a turn over all moves may hold the loop. A step that has begun, at most a promotion, ends first."""


class Stage(enum.Enum):
    COPYING = enum.auto()
    ASSIGNING = enum.auto()
    """The request to record the target directory is on its way to the controller."""
    ASSIGNED = enum.auto()
    """The metadata names the target directory."""
    PROMOTING = enum.auto()


class Move:
    __slots__ = ("future", "partition", "paused", "paused_until_ms", "stage")

    def __init__(self, partition: Partition, future: PartitionLog) -> None:
        self.partition = partition
        self.future = future
        self.stage = Stage.COPYING
        self.paused = False
        self.paused_until_ms = 0.0

    @property
    def target_id(self) -> Uuid:
        return self.future.log_dir.directory_id


class ReplicaMoves:
    def __init__(self, logs: LogStore, clock: Clock, directories: Callable[[], DirectoryAssignments | None]) -> None:
        self._logs = logs
        self._clock = clock
        self._directories = directories
        self._moves: dict[TopicPartition, Move] = {}

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    # Beginning and ending

    def begin(self, partition: Partition, path: str) -> None:
        """Move the replica into the directory `path`; a running move to a different directory ends. Raises KafkaError
        when the directory refuses the replica; a running move then continues."""
        tp = partition.topic_partition
        target = self._logs.directory(path)
        self._logs.moves.check_target(tp, target)
        partition.log.log_dir.check_online()
        move = self._moves.get(tp)
        if move is not None and move.future.log_dir is target:
            return
        if move is not None:
            self._end(move)
        if partition.log.log_dir is not target:
            future = self._logs.moves.create(tp, target, self._clock.time_ms())
            self._moves[tp] = Move(partition, future)

    def resume(self, partition: Partition, assigned: Uuid) -> None:
        """Continue a move that a restart interrupted; `assigned` is the directory in the metadata."""
        future = self._logs.moves.future(partition.topic_partition)
        if future is not None:
            move = self._moves[partition.topic_partition] = Move(partition, future)
            if assigned == move.target_id != ZERO_UUID:
                move.stage = Stage.ASSIGNED
            log.info("move.resumed", partition=str(partition.topic_partition), target=future.log_dir.path)

    def forget(self, partition: Partition) -> None:
        """The partition leaves this node; the log store deletes the copy with the log."""
        self._moves.pop(partition.topic_partition, None)

    def on_directory_failed(self) -> None:
        for move in self:
            self._check_directories(move)

    def is_ahead(self, partition: Partition, directory_id: Uuid) -> bool:
        """Whether the metadata names `directory_id` because the replica is about to be promoted there."""
        move = self._moves.get(partition.topic_partition)
        return move is not None and move.stage is not Stage.COPYING and directory_id == move.target_id

    def _end(self, move: Move, *, keep_copy: bool = False) -> None:
        """End the move, and return the assignment that the controller has recorded for it."""
        tp = move.partition.topic_partition
        del self._moves[tp]
        if not keep_copy:
            self._logs.moves.abandon(tp, self._clock.time_ms())
        directories = self._directories()
        if move.stage is not Stage.COPYING and directories is not None:
            directories.assign(move.partition, move.partition.log.log_dir.directory_id)

    def _check_directories(self, move: Move) -> bool:
        """End a move whose source or copy is in a failed directory; the files stay. Returns whether the move continues."""
        if self._moves.get(move.partition.topic_partition) is not move:
            return False  # it has ended: the work on another move has failed its directory in this very turn
        source_failed = move.partition.log.log_dir.offline
        target_failed = self._logs.moves.future(move.partition.topic_partition) is not move.future
        if move.stage is Stage.PROMOTING or not (source_failed or target_failed):
            return True
        failed = move.future.log_dir if target_failed else move.partition.log.log_dir
        log.error("move.failed", partition=str(move.partition.topic_partition), reason=f"{failed.path} failed")
        self._end(move, keep_copy=True)
        return False

    # Copying

    def advance(self, max_bytes: int) -> bool:
        """Copy up to about `max_bytes` of all moves together and promote assigned moves. Returns whether more work is
        due at once. Assigned moves come first and without a limit: the metadata is ahead of them.
        """
        copied_before, until_ms = self._logs.moves.copied_bytes, self._clock.monotonic_ms() + TURN_MS
        busy = False
        for move in sorted(self, key=lambda move: move.stage is not Stage.ASSIGNED):
            remaining_bytes = max_bytes - (self._logs.moves.copied_bytes - copied_before)
            if self._clock.monotonic_ms() > until_ms or (remaining_bytes <= 0 and move.stage is not Stage.ASSIGNED):
                return True
            if self._check_directories(move) and move.paused_until_ms <= self._clock.monotonic_ms():
                self._try(move, LAST_PIECE_BYTES if move.stage is Stage.ASSIGNED else remaining_bytes)
                busy |= self._comes_last(move) and not move.paused
        return busy

    def _comes_last(self, move: Move) -> bool:
        """Put the move behind all other moves. Returns whether it still runs."""
        tp = move.partition.topic_partition
        if self._moves.get(tp) is not move:
            return False
        self._moves[tp] = self._moves.pop(tp)
        return True

    def _try(self, move: Move, max_bytes: int) -> None:
        stage = move.stage
        try:
            self._step(move, max_bytes)
            move.paused = False
        except KafkaError as error:
            move.stage = stage
            if not self._check_directories(move):
                return
            tp = move.partition.topic_partition
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                log.error("move.failed", partition=str(tp), reason=error.message)
                self._end(move)
                return
            if not move.paused:
                log.warning("move.paused", partition=str(tp), target=move.future.log_dir.path, reason=error.message)
            move.paused = True
            move.paused_until_ms = self._clock.monotonic_ms() + FULL_DISK_PAUSE_MS

    def _step(self, move: Move, max_bytes: int) -> None:
        partition = move.partition
        if not self._logs.moves.copy(partition.topic_partition, max_bytes, self._clock.time_ms()):
            return
        directories = self._directories_to_notify(move)
        if move.stage is Stage.ASSIGNED or directories is None:
            self._promote(move)
        elif move.stage is Stage.COPYING:
            move.stage = Stage.ASSIGNING
            directories.assign(partition, move.target_id, partial(self._on_accepted, move))

    def _directories_to_notify(self, move: Move) -> DirectoryAssignments | None:
        """The reports to the controller; None before metadata.version 17, whose metadata has no directories."""
        partition = move.partition
        registration = partition.context.image.partition(*partition.topic_partition)
        has_directories = registration is not None and bool(registration.directories) and move.target_id != ZERO_UUID
        return self._directories() if has_directories else None

    def _on_accepted(self, move: Move) -> None:
        """The next turn promotes the copy. Not here: the controller's response may cover two thousand replicas."""
        if (
            self._moves.get(move.partition.topic_partition) is move
        ):  # else the end of the move has returned the assignment
            move.stage = Stage.ASSIGNED

    def _promote(self, move: Move) -> None:
        partition = move.partition
        move.stage, assigned = Stage.PROMOTING, move.stage is Stage.ASSIGNED
        partition.log = self._logs.moves.promote(partition.topic_partition, self._clock.time_ms())
        del self._moves[partition.topic_partition]
        directories = self._directories()
        if not assigned and directories is not None:
            directories.assign(partition)
