"""What DescribeLogDirs reports about a directory: its volume and the size of each replica in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset, TopicPartition, Uuid

UNKNOWN_BYTES = -1


class ReplicaDescription(NamedTuple):
    partition: TopicPartition
    size_bytes: int
    offset_lag: Offset
    """High watermark minus log end, or how far a future replica is behind the current one."""
    is_future: bool


class LogDirDescription(NamedTuple):
    path: str
    directory_id: Uuid
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaDescription]
    cordoned: bool


def describe_directory(
    log_dir: LogDirectory, logs: Iterable[PartitionLog], futures: Iterable[PartitionLog]
) -> LogDirDescription:
    if log_dir.offline:
        return _offline(log_dir)
    try:
        total, usable = log_dir.storage.disk_space(log_dir.path)
    except OSError as error:
        log_dir.fail(error)
        return _offline(log_dir)
    current = list(logs)
    ends = {log.topic_partition: log.log_end_offset for log in current}
    replicas = [
        ReplicaDescription(log.topic_partition, log.size_bytes, max(log.high_watermark - log.log_end_offset, 0), False)
        for log in current
        if log.log_dir is log_dir
    ]
    replicas += [
        ReplicaDescription(
            log.topic_partition,
            log.size_bytes,
            ends.get(log.topic_partition, log.log_end_offset) - log.log_end_offset,
            True,
        )
        for log in futures
        if log.log_dir is log_dir
    ]
    return LogDirDescription(
        log_dir.path, log_dir.directory_id, ErrorCode.NONE, total, usable, replicas, log_dir.cordoned
    )


def _offline(log_dir: LogDirectory) -> LogDirDescription:
    error = ErrorCode.KAFKA_STORAGE_ERROR
    return LogDirDescription(
        log_dir.path, log_dir.directory_id, error, UNKNOWN_BYTES, UNKNOWN_BYTES, [], log_dir.cordoned
    )
