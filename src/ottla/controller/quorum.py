"""DescribeQuorum: the leader's state of the voters and observers of `__cluster_metadata`."""

from __future__ import annotations

from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.protocol.generated.describe_quorum_request import DescribeQuorumRequest
from ottla.protocol.generated.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.protocol.primitives import Message
from ottla.raft.views import ReplicaProgress


def describe_quorum(
    state: ControllerState, request: DescribeQuorumRequest, _context: ControllerRequestContext
) -> Decision[Message, DescribeQuorumResponse]:
    requested_partitions = [
        (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if requested_partitions != [(METADATA_TOPIC, 0)]:
        return Decision(_unknown(request))
    view = state.quorum.describe()
    partition = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=view.leader_id,
        leader_epoch=view.leader_epoch,
        high_watermark=view.high_watermark,
        current_voters=[_replica(replica) for replica in view.voters],
        observers=[_replica(replica) for replica in view.observers],
    )
    response = DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=[TopicData(METADATA_TOPIC, [partition])],
        nodes=_nodes(state),
    )
    return Decision(response)


def _nodes(state: ControllerState) -> list[Node]:
    return [
        Node(voter.id, [Listener(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints])
        for voter in state.quorum.voters.voters
    ]


def _replica(replica: ReplicaProgress) -> ReplicaState:
    return ReplicaState(
        replica.id,
        replica.directory_id,
        replica.log_end_offset,
        replica.last_fetch_ms,
        replica.last_caught_up_ms,
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        TopicData(
            topic.topic_name,
            [PartitionData(part.partition_index, code, code.message) for part in topic.partitions],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics)
