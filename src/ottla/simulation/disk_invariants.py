"""What the disk of a broker must hold at any moment, because the power may be cut at any moment.

The checks read the simulated disk beside the logs of the process. A checkpoint counts with its content on disk and with
the older content that a power cut may bring back:

- below a recovery point, all bytes and names are synced;
- no recovery point and no cleaner's offset is past the end of its log;
- a start that was acknowledged to DeleteRecords is on disk;
- all segments of a directory with the marker of a clean stop are synced, and a process that runs has no such marker.

A node keeps no more segments open than its limit allows, over all directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.log.checkpoints import CorruptCheckpointError, decode_lines
from ottla.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    DELETE_DIR_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIR_SUFFIX,
    base_offset_of,
)
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.protocol.records import parse_header
from ottla.simulation.invariants import Violation
from ottla.simulation.machine import SEGMENT_FILES

if TYPE_CHECKING:
    from ottla.log.log_directory import LogDirectory
    from ottla.log.partition_log import PartitionLog
    from ottla.simulation.disk import FakeDisk, FakeFile
    from ottla.simulation.faulty_disk import FaultyDisk
    from ottla.simulation.ledger import Ledger
    from ottla.simulation.whole_node import WholeNode

Segments = dict[str, list[tuple[Offset, "FakeFile"]]]
"""Folder -> base offset and file of its segments, in order."""
Entries = dict[TopicPartition, Offset]


@dataclass(slots=True)
class DiskInvariants:
    ledger: Ledger

    def check(self, node: WholeNode) -> None:
        """Nothing is checked of a process that has not loaded its logs."""
        broker = node.process.broker if node.process is not None else None
        segments = _segments(node.disk)
        if not node.up:
            _check_clean_stop(node, segments)
        if broker is None or not broker.logs.loaded:
            return
        _check_open_files(node.node_id, broker.logs.directories)
        logs = [*broker.logs.logs().values(), *broker.logs.moves.futures()]
        for directory in broker.logs.online_directories():
            present = [log for log in logs if log.log_dir is directory]
            for entries in _contents(node.disk, f"{directory.path}/{RECOVERY_POINT_CHECKPOINT}"):
                for log in present:
                    _check_recovery_point(node.node_id, log, entries, segments)
            for entries in _contents(node.disk, f"{directory.path}/{CLEANER_CHECKPOINT}"):
                for log in present:
                    _check_end(node.node_id, log, entries, CLEANER_CHECKPOINT)
            served = [log for log in broker.logs.logs().values() if log.log_dir is directory]
            self._check_starts(node, directory.path, served)
            if any(node.disk.former(f"{directory.path}/{CLEAN_SHUTDOWN}")):
                raise Violation(f"node {node.node_id} runs, and a power cut may mark {directory.path} as clean again")

    def judge(self, nodes: Iterable[WholeNode]) -> None:
        """At the end: a node goes on with every copy of a log, also with copies that a start found."""
        for node in nodes:
            if node.process is None or node.process.broker is None or node.replicas is None:
                continue
            moving = {move.partition.topic_partition for move in node.replicas.moves}
            for copy in node.process.broker.logs.moves.futures():
                if copy.topic_partition not in moving:
                    raise Violation(
                        f"{copy.topic_partition} on node {node.node_id}: no move goes on with {copy.directory}"
                    )

    def _check_starts(self, node: WholeNode, folder: str, logs: list[PartitionLog]) -> None:
        file = node.disk.files.get(f"{folder}/{LOG_START_OFFSET_CHECKPOINT}")
        starts = _entries(file.synced) if file is not None else {}
        for log in logs:
            key = (log.topic_id, log.topic_partition.partition)
            deleted = self.ledger.deleted.get((node.node_id, key), 0)
            start = max(starts.get(log.topic_partition, 0), log.segments[0].base_offset)
            if start < deleted:
                raise Violation(
                    f"{log.topic_partition} on node {node.node_id}: records before {deleted} were deleted, "
                    f"but on disk the log begins at {start}"
                )


def _check_open_files(node: NodeId, directories: list[LogDirectory]) -> None:
    pools = {id(directory.open_files): directory.open_files for directory in directories}
    count = sum(len(pool) for pool in pools.values())
    if count > SEGMENT_FILES:
        raise Violation(f"node {node} keeps {count} segments open, and its limit is {SEGMENT_FILES}")


def _check_clean_stop(node: WholeNode, segments: Segments) -> None:
    for folder in node.spec.rules.data_dirs:
        if f"{folder}/{CLEAN_SHUTDOWN}" not in node.disk.files:
            continue
        for path, files in segments.items():
            if path.startswith(folder + "/") and not path.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
                for _, file in files:
                    if file.synced != file.data or (file.data and not file.synced_name):
                        raise Violation(f"node {node.node_id} called {folder} clean, and {file.path} is not synced")


def _check_end(node: NodeId, log: PartitionLog, entries: Entries, name: str) -> Offset:
    offset = entries.get(log.topic_partition, 0)
    if offset > log.log_end_offset:
        raise Violation(
            f"{log.topic_partition} on node {node} ends at {log.log_end_offset}, but its {name} may say {offset}"
        )
    return offset


def _check_recovery_point(node: NodeId, log: PartitionLog, entries: Entries, segments: Segments) -> None:
    offset = _check_end(node, log, entries, RECOVERY_POINT_CHECKPOINT)
    files = segments.get(log.directory, [])
    for place, (base_offset, file) in enumerate(files):
        if base_offset >= offset:
            return
        if file.synced_name and file.synced == file.data:
            continue
        ends = place + 1 < len(files) and files[place + 1][0] <= offset
        size = len(file.data) if ends else _position(file, offset)
        if not file.synced_name or file.synced[:size] != file.data[:size]:
            raise Violation(
                f"{log.topic_partition} on node {node}: {file.path} is not synced, "
                f"but the recovery point on disk may be {offset}"
            )


def _position(file: FakeFile, offset: Offset) -> int:
    """Where the first batch at or behind `offset` begins."""
    at, data = 0, bytes(file.data)
    while at < len(data):
        header = parse_header(data, at)
        if header.base_offset >= offset:
            return at
        at += header.size
    return len(data)


def _segments(disk: FakeDisk) -> Segments:
    folders: Segments = {}
    for path, file in disk.files.items():
        if path.endswith(LOG_SUFFIX):
            folder, _, name = path.rpartition("/")
            base_offset = base_offset_of(name)
            if base_offset is not None:
                folders.setdefault(folder, []).append((base_offset, file))
    for files in folders.values():
        files.sort(key=lambda pair: pair[0])
    return folders


def _contents(disk: FaultyDisk, path: str) -> Iterator[Entries]:
    """What the file may hold after a power cut."""
    file = disk.files.get(path)
    if file is not None:
        yield _entries(bytes(file.data))
        for former in disk.former(path):
            yield _entries(former)


def _entries(data: bytes) -> Entries:
    try:
        lines = decode_lines("", data, 3)
    except CorruptCheckpointError:
        return {}
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in lines}
