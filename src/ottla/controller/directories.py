"""AssignReplicasToDirs: a broker reports the log directories of its replicas."""

from __future__ import annotations

from ottla.controller.brokers import check_broker_epoch
from ottla.controller.leadership import Partition, leader_and_isr_updates
from ottla.controller.partition_change import partition_change
from ottla.controller.state import ControllerRequestContext, ControllerState, has_online_directory
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_SINCE
from ottla.metadata.image import BrokerRegistration
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from ottla.protocol.generated.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ottla.protocol.primitives import Message


def assign_replicas_to_dirs(
    state: ControllerState, request: AssignReplicasToDirsRequest, _context: ControllerRequestContext
) -> Decision[Message, AssignReplicasToDirsResponse]:
    if state.image.metadata_version < DIRECTORY_ASSIGNMENT_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(state, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    offline: list[Partition] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            partitions = [
                PartitionData(
                    part.partition_index,
                    _assign(state, broker, directory.id, topic.topic_id, part.partition_index, records, offline),
                )
                for part in topic.partitions
            ]
            topics.append(TopicData(topic.topic_id, partitions))
        directories.append(DirectoryData(directory.id, topics))
    records += leader_and_isr_updates(state, offline, remove=broker.id)
    return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=directories), records)


def _assign(
    state: ControllerState,
    broker: BrokerRegistration,
    directory: Uuid,
    topic_id: Uuid,
    index: int,
    records: list[Message],
    offline: list[Partition],
) -> ErrorCode:
    topic = state.image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = partition_change(state, topic.name, topic_id, index, partition)
    change.directories[broker.id] = directory
    record = change.build()
    if record is not None:
        records.append(record)
    if not has_online_directory(broker, directory):
        offline.append((topic, index, partition))
    return ErrorCode.NONE
