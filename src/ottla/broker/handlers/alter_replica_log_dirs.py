"""AlterReplicaLogDirs: move replicas between the log directories of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.pace import paced
from ottla.protocol.generated.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from ottla.protocol.generated.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.planes import DataPlane


def handle(context: RequestContext[DataPlane], request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in paced(request.dirs):
        for topic in paced(directory.topics):
            for index in paced(topic.partitions, 10):
                code = _move(context, TopicPartition(topic.name, index), directory.path)
                results.setdefault(topic.name, []).append(AlterReplicaLogDirPartitionResult(index, int(code)))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in results.items()]
    )


def _move(context: RequestContext[DataPlane], tp: TopicPartition, path: str) -> ErrorCode:
    """Begin the move; the copying goes on in the background (`ReplicaMoves`)."""
    broker = context.broker
    target = next((directory for directory in broker.logs.directories if directory.path == path), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    try:
        broker.replicas.moves.begin(broker.replicas.get(tp.topic, tp.partition), path)
    except KafkaError as error:
        # Kafka's answer of old for a replica that is not here.
        return ErrorCode.REPLICA_NOT_AVAILABLE if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error.code
    return ErrorCode.NONE
