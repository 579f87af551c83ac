"""Responses that refuse a whole request, where the code does not simply stand at the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api import response_class
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.authorization.shares import ShareGroupStateRequest
    from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest
    from ottla.protocol.generated.add_partitions_to_txn_response import AddPartitionsToTxnResponse
    from ottla.protocol.generated.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
    from ottla.protocol.generated.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
    from ottla.protocol.generated.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
    from ottla.protocol.generated.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
    from ottla.protocol.generated.describe_client_quotas_request import DescribeClientQuotasRequest
    from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse
    from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
    from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
    from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
    from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
    from ottla.protocol.generated.join_group_request import JoinGroupRequest
    from ottla.protocol.generated.join_group_response import JoinGroupResponse
    from ottla.protocol.generated.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
    from ottla.protocol.generated.offset_commit_response import OffsetCommitResponse, OffsetCommitResponseTopic
    from ottla.protocol.generated.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
    from ottla.protocol.generated.txn_offset_commit_response import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponseTopic,
    )
    from ottla.protocol.generated.write_txn_markers_request import WriteTxnMarkersRequest
    from ottla.protocol.generated.write_txn_markers_response import WriteTxnMarkersResponse


def refuse(request: Message, code: ErrorCode) -> Any:
    """The response to `request` that carries only `code`."""
    name = type(request).__name__
    special = _SPECIAL.get(name)
    if special is not None:
        return special(request, int(code))
    if _decided_by_controller(request.API_KEY):
        from ottla.controller.error_responses import error_response

        return error_response(request, KafkaError(code))
    response: Any = response_class(request.API_KEY)()
    response.error_code = int(code)
    if getattr(response, "error_message", None) is not None:
        response.error_message = code.message
    return response


def _decided_by_controller(api_key: int) -> bool:
    from ottla.controller.controller import DECISIONS

    return api_key in DECISIONS


def _offset_commit(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    from ottla.protocol.generated.offset_commit_response import OffsetCommitResponse

    return OffsetCommitResponse(topics=[offset_commit_topic(topic, code) for topic in request.topics])


def offset_commit_topic(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    from ottla.protocol.generated.offset_commit_response import (
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    partitions = [OffsetCommitResponsePartition(item.partition_index, code) for item in topic.partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


def _txn_offset_commit(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    from ottla.protocol.generated.txn_offset_commit_response import TxnOffsetCommitResponse

    return TxnOffsetCommitResponse(topics=[txn_offset_commit_topic(topic, code) for topic in request.topics])


def txn_offset_commit_topic(topic: TxnOffsetCommitRequestTopic, code: int) -> TxnOffsetCommitResponseTopic:
    from ottla.protocol.generated.txn_offset_commit_response import (
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    partitions = [TxnOffsetCommitResponsePartition(item.partition_index, code) for item in topic.partitions]
    return TxnOffsetCommitResponseTopic(topic.name, partitions)


def _alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, code: int) -> AlterReplicaLogDirsResponse:
    from ottla.protocol.generated.alter_replica_log_dirs_response import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    results = [
        AlterReplicaLogDirTopicResult(
            topic.name, [AlterReplicaLogDirPartitionResult(index, code) for index in topic.partitions]
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _write_txn_markers(request: WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    from ottla.protocol.generated.write_txn_markers_response import (
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    )

    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [WritableTxnMarkerPartitionResult(index, code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def add_partitions_to_txn(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    from ottla.protocol.generated.add_partitions_to_txn_response import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
            )
            for topic in request.v3_and_below_topics
        ]
    )


def init_producer_id(_request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
    from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse

    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _describe_client_quotas(_request: DescribeClientQuotasRequest, code: int) -> DescribeClientQuotasResponse:
    from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse

    return DescribeClientQuotasResponse(error_code=code, error_message=ErrorCode(code).message, entries=None)


def _describe_scram(request: DescribeUserScramCredentialsRequest, code: int) -> DescribeUserScramCredentialsResponse:
    """One result for each requested user, without the user's name."""
    from ottla.protocol.generated.describe_user_scram_credentials_response import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

    message = ErrorCode(code).message
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[DescribeUserScramCredentialsResult("", code, message) for _ in request.users or ()],
    )


def _alter_reassignments(request: AlterPartitionReassignmentsRequest, code: int) -> AlterPartitionReassignmentsResponse:
    from ottla.protocol.generated.alter_partition_reassignments_response import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    message = ErrorCode(code).message
    topics = [
        ReassignableTopicResponse(
            topic.name,
            [ReassignablePartitionResponse(item.partition_index, code, message) for item in topic.partitions],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=topics)


def _join_group(_request: JoinGroupRequest, code: int) -> JoinGroupResponse:
    from ottla.protocol.generated.join_group_response import JoinGroupResponse

    return JoinGroupResponse(error_code=code, protocol_name="")


def _share_group_state(request: ShareGroupStateRequest, code: int) -> Message:
    from ottla.broker.authorization.shares import refused_state

    return refused_state(request, code)


_SPECIAL: dict[str, Callable[[Any, int], Message]] = {
    "AddPartitionsToTxnRequest": add_partitions_to_txn,
    "AlterPartitionReassignmentsRequest": _alter_reassignments,
    "AlterReplicaLogDirsRequest": _alter_replica_log_dirs,
    "DescribeClientQuotasRequest": _describe_client_quotas,
    "DescribeUserScramCredentialsRequest": _describe_scram,
    "InitProducerIdRequest": init_producer_id,
    "JoinGroupRequest": _join_group,
    "OffsetCommitRequest": _offset_commit,
    "TxnOffsetCommitRequest": _txn_offset_commit,
    "WriteTxnMarkersRequest": _write_txn_markers,
    **dict.fromkeys(
        (
            "InitializeShareGroupStateRequest",
            "ReadShareGroupStateRequest",
            "WriteShareGroupStateRequest",
            "DeleteShareGroupStateRequest",
            "ReadShareGroupStateSummaryRequest",
        ),
        _share_group_state,
    ),
}
