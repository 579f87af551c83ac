"""Telling the controller in which log directory each replica lies (KIP-858), so that it knows what a failed disk took.

One AssignReplicasToDirs request at a time, with all that wait; a refusal of the whole is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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

Send = Callable[[AssignReplicasToDirsRequest, Callable[[AssignReplicasToDirsResponse | None], None]], None]


class DirectoryAssignments:
    def __init__(self, context: ReplicaContext, timers: Timers, send: Send) -> None:
        self._context = context
        self._timers = timers
        self._send = send
        self._waiting: dict[Partition, None] = {}
        self._sent: list[Partition] = []
        self._busy = False

    def assign(self, partition: Partition) -> None:
        """Say where the partition's log lies, when the metadata does not know it yet."""
        self._waiting[partition] = None
        if not self._busy:
            self._busy = True
            self._timers.call_soon(self._flush)

    def _flush(self) -> None:
        self._sent = list(self._waiting)[:MAX_AT_ONCE]
        directories: dict[Uuid, dict[Uuid, TopicData]] = {}
        for partition in self._sent:
            del self._waiting[partition]
            directory = partition.log.log_dir.directory_id
            if directory == ZERO_UUID or partition.log.log_dir.offline:
                continue
            topics = directories.setdefault(directory, {})
            topic = topics.setdefault(partition.topic_id, TopicData(partition.topic_id, []))
            topic.partitions.append(PartitionData(partition.topic_partition.partition))
        if not directories:
            self._busy = False
            return
        context = self._context
        data = [DirectoryData(directory, list(topics.values())) for directory, topics in directories.items()]
        self._send(AssignReplicasToDirsRequest(context.node_id, context.broker_epoch, data), self._on_response)

    def _on_response(self, response: AssignReplicasToDirsResponse | None) -> None:
        if response is None or response.error_code:
            if response is not None:
                log.warning("directories.not_assigned", reason=ErrorCode(response.error_code).name)
            self._waiting.update(dict.fromkeys(self._sent))
            self._timers.call_later(RETRY_MS, self._flush)
        elif self._waiting:
            self._timers.call_soon(self._flush)
        else:
            self._busy = False
