"""Which of the folders that a start finds is the log of its partition.

A crash between the two renames of a promotion leaves two logs of one partition, in two directories. A directory that
was offline brings back a log, or a copy, that the node has replaced meanwhile. This module only chooses, and takes no
directory offline; `LogStore.load` acts on the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.log.future_copy import is_part_of
from ottla.log.partition_log import PartitionLog
from ottla.model.ids import ZERO_UUID, TopicPartition, Uuid


class Assignment(NamedTuple):
    """The topic id and directory id of a replica of this node in the metadata; zeros where the metadata has none."""

    topic_id: Uuid = ZERO_UUID
    directory_id: Uuid = ZERO_UUID


NO_ASSIGNMENT = Assignment()
Assignments = Callable[[TopicPartition], Assignment]


def unassigned(_partition: TopicPartition) -> Assignment:
    return NO_ASSIGNMENT


class LoadedLogs(NamedTuple):
    """Everything that was loaded for one partition."""

    logs: list[PartitionLog]
    futures: list[PartitionLog]


class Choice(NamedTuple):
    log: PartitionLog | None
    future: PartitionLog | None
    """A copy of `log`, or without one an orphan, which may be all that is left of the partition."""
    superseded: list[PartitionLog]
    """Logs whose records are all in `log` too, and unfinished copies."""
    contradicting: list[PartitionLog]
    """Logs of a different topic with the same name, or with records that `log` does not have."""


def choose(loaded: LoadedLogs, assignment: Assignment) -> Choice:
    log = max(loaded.logs, key=lambda log: _rank(log, assignment), default=None)
    superseded: list[PartitionLog] = []
    contradicting: list[PartitionLog] = []
    for other in loaded.logs:
        if other is not log and log is not None:
            same = other.topic_id == log.topic_id and is_part_of(other, log)
            (superseded if same else contradicting).append(other)
    futures = sorted(loaded.futures, key=lambda log: _rank(log, assignment), reverse=True)
    usable = [copy for copy in futures if _may_serve(copy, log, assignment)]
    future = usable[0] if usable else None
    for copy in futures:
        if copy is not future:
            (contradicting if log is None or log.topic_id != copy.topic_id else superseded).append(copy)
    return Choice(log, future, superseded, contradicting)


def _rank(log: PartitionLog, assignment: Assignment) -> tuple[object, ...]:
    """The log of the metadata's topic comes first. Of two such logs, the log with the later epoch or end offset went on
    after the other log stopped. Only if both are equal, the metadata's directory decides (KIP-858): the controller
    accepted the promotion to that directory.
    """
    assigned = log.log_dir.directory_id == assignment.directory_id != ZERO_UUID
    return (
        log.topic_id == assignment.topic_id,
        # A directory that failed while it was being read: its logs are not whole.
        not log.log_dir.offline or assigned,
        log.latest_epoch,
        log.log_end_offset,
        assigned,
        log.log_start_offset,
    )


def _may_serve(future: PartitionLog, log: PartitionLog | None, assignment: Assignment) -> bool:
    if future.topic_id == ZERO_UUID or future.log_dir.offline:
        return False  # a power cut before its first sync: the topic of the copy is unknown
    if log is None:
        return assignment.topic_id in (ZERO_UUID, future.topic_id)
    return log.topic_id == future.topic_id and log.log_dir is not future.log_dir
