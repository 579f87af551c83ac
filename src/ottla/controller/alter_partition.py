"""AlterPartition: a leader proposes its ISR; the controller checks epochs and candidates and writes it down.

An ISR member must be registered, unfenced, not on its way down, and of the incarnation that the leader saw (KIP-903).
"""

from __future__ import annotations

from ottla.controller.brokers import check_broker_epoch
from ottla.controller.partition_change import Election, partition_change
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.image import RECOVERED, RECOVERING, PartitionRegistration, TopicImage
from ottla.metadata.records import NO_CHANGE
from ottla.metadata.replay import merge_partition
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.protocol.generated.alter_partition_request import AlterPartitionRequest, BrokerState
from ottla.protocol.generated.alter_partition_request import PartitionData as ChangeRequest
from ottla.protocol.generated.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from ottla.protocol.primitives import Message


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest, context: ControllerRequestContext
) -> Decision[Message, AlterPartitionResponse]:
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    topics = []
    for topic_request in request.topics:
        topic = state.image.topics_by_id.get(topic_request.topic_id)
        results = []
        for change_request in topic_request.partitions:
            if context.version < 3:
                change_request.new_isr_with_epochs = [BrokerState(broker_id) for broker_id in change_request.new_isr]
            results.append(
                PartitionData(change_request.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
                if topic is None
                else _alter(state, topic, change_request, request.broker_id, records)
            )
        topics.append(TopicData(topic_request.topic_id, results))
    return Decision(AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics), records)


def _alter(
    state: ControllerState, topic: TopicImage, change_request: ChangeRequest, broker_id: NodeId, records: list[Message]
) -> PartitionData:
    index = change_request.partition_index
    partition = topic.partitions.get(index)
    if partition is None:
        return PartitionData(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refusal = _refusal(state, partition, change_request, broker_id)
    if refusal is not ErrorCode.NONE:
        return PartitionData(index, refusal)
    change = partition_change(state, topic.name, topic.id, index, partition)
    if state.unclean_election_enabled(topic.name):
        change.election = Election.UNCLEAN
    change.isr = [member.broker_id for member in change_request.new_isr_with_epochs]
    change.leader_recovery_state = change_request.leader_recovery_state
    record = change.build()
    if record is not None:
        records.append(record)
        partition = merge_partition(partition, record)
        if record.leader not in (broker_id, NO_CHANGE):
            # The ISR completed a reassignment that moves the leadership: the old leader must read the metadata again.
            return PartitionData(index, ErrorCode.NEW_LEADER_ELECTED)
        if not partition.has_preferred_leader and partition.replicas[0] in partition.isr:
            state.want_balance()
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _refusal(
    state: ControllerState, partition: PartitionRegistration, change_request: ChangeRequest, broker_id: NodeId
) -> ErrorCode:
    isr = [member.broker_id for member in change_request.new_isr_with_epochs]
    if (
        change_request.leader_epoch > partition.leader_epoch
        or change_request.partition_epoch > partition.partition_epoch
    ):
        # The leader has a newer epoch than we do, so we are not the controller any more.
        return ErrorCode.NOT_CONTROLLER
    if change_request.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change_request.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or broker_id not in isr:
        return ErrorCode.INVALID_REQUEST
    if change_request.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(state, member) for member in change_request.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(state: ControllerState, member: BrokerState) -> bool:
    broker = state.image.brokers.get(member.broker_id)
    if broker is None or not broker.active:
        return False
    return member.broker_epoch in (-1, broker.epoch)
