"""Reports of the log directory of each replica to the controller (KIP-858), which needs them when a disk fails.

One AssignReplicasToDirs request is in flight at a time and carries all pending assignments, the latest of each partition.
A refused assignment is retried, unless the controller does not have the replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.protocol.generated.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.generated.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from ottla.env.seams import Timers
    from ottla.replication.context import ReplicaContext
    from ottla.replication.partition import Partition

log = get_logger(__name__)

RETRY_MS = 500
MAX_AT_ONCE = 2000
_UNKNOWN_REPLICA = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)

Send = Callable[[AssignReplicasToDirsRequest, Callable[[AssignReplicasToDirsResponse | None], None]], None]


class _DirectoryAssignment(NamedTuple):
    directory_id: Uuid | None
    """None: the directory of the partition's log at the time of sending."""
    on_accepted: Callable[[], None] | None


class DirectoryAssignments:
    def __init__(self, context: ReplicaContext, timers: Timers, send: Send) -> None:
        self._context = context
        self._timers = timers
        self._send = send
        self._pending: dict[Partition, _DirectoryAssignment] = {}
        self._in_flight: dict[Partition, _DirectoryAssignment] = {}
        self._busy = False

    def assign(
        self, partition: Partition, directory_id: Uuid | None = None, on_accepted: Callable[[], None] | None = None
    ) -> None:
        """Report the directory of the partition's log, or `directory_id`, which may be a directory that failed.
        `on_accepted` is called when the controller has recorded the assignment.
        """
        self._pending[partition] = _DirectoryAssignment(directory_id, on_accepted)
        if not self._busy:
            self._busy = True
            self._timers.call_soon(self._flush)

    def _flush(self) -> None:
        self._in_flight = {}
        directories: dict[Uuid, dict[Uuid, TopicData]] = {}
        for partition in list(self._pending)[:MAX_AT_ONCE]:
            assignment = self._pending.pop(partition)
            directory_id = assignment.directory_id
            if directory_id is None:
                log_dir = partition.log.log_dir
                directory_id = ZERO_UUID if log_dir.offline else log_dir.directory_id
            if directory_id == ZERO_UUID:
                continue
            self._in_flight[partition] = assignment
            topics = directories.setdefault(directory_id, {})
            topic = topics.setdefault(partition.topic_id, TopicData(partition.topic_id, []))
            topic.partitions.append(PartitionData(partition.topic_partition.partition))
        if not directories:
            self._busy = False
            return
        context = self._context
        data = [DirectoryData(directory_id, list(topics.values())) for directory_id, topics in directories.items()]
        self._send(AssignReplicasToDirsRequest(context.node_id, context.broker_epoch, data), self._on_response)

    def _on_response(self, response: AssignReplicasToDirsResponse | None) -> None:
        refused = self._refused(response)
        for partition in refused:
            self._pending.setdefault(partition, self._in_flight[partition])
        accepted = [assignment for partition, assignment in self._in_flight.items() if partition not in refused]
        self._in_flight = {}
        if refused:
            self._timers.call_later(RETRY_MS, self._flush)
        elif self._pending:
            self._timers.call_soon(self._flush)
        else:
            self._busy = False
        for assignment in accepted:
            if assignment.on_accepted is not None:
                assignment.on_accepted()

    def _refused(self, response: AssignReplicasToDirsResponse | None) -> list[Partition]:
        """The partitions to send again. Partitions that the controller does not have are dropped."""
        if response is None or response.error_code:
            if response is not None:
                log.warning("directories.not_assigned", reason=ErrorCode(response.error_code).name)
            return list(self._in_flight)
        codes = {
            (topic.topic_id, partition.partition_index): ErrorCode(partition.error_code)
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        refused = []
        for partition in list(self._in_flight):
            code = codes.get((partition.topic_id, partition.topic_partition.partition))
            if code in _UNKNOWN_REPLICA:
                del self._in_flight[partition]
            elif code is not ErrorCode.NONE:
                log.warning("directory.not_assigned", partition=str(partition.topic_partition), reason=str(code))
                refused.append(partition)
        return refused
