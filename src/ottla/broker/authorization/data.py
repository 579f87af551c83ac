"""Rules of records, offsets and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import refusals
from ottla.broker.authorization.groups import read_group
from ottla.broker.authorization.refusals import txn_offset_commit_topic
from ottla.broker.authorization.rules import (
    all_of,
    by_name,
    by_topic,
    for_cluster,
    for_each,
    for_one,
    on_cluster,
    split,
    then,
)
from ottla.broker.authorization.topics import DENIED, name_of_topic
from ottla.broker.connection import CloseConnection
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.model.pace import paced
from ottla.protocol.records_header import has_transactional_bit

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.protocol.generated.add_partitions_to_txn_request import AddPartitionsToTxnRequest
    from ottla.protocol.generated.add_partitions_to_txn_response import AddPartitionsToTxnResponse
    from ottla.protocol.generated.delete_records_request import DeleteRecordsTopic
    from ottla.protocol.generated.delete_records_response import DeleteRecordsTopicResult
    from ottla.protocol.generated.describe_producers_request import TopicRequest
    from ottla.protocol.generated.describe_producers_response import TopicResponse
    from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
    from ottla.protocol.generated.describe_transactions_response import DescribeTransactionsResponse
    from ottla.protocol.generated.fetch_request import FetchRequest
    from ottla.protocol.generated.fetch_response import FetchResponse
    from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
    from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse
    from ottla.protocol.generated.list_offsets_request import ListOffsetsTopic
    from ottla.protocol.generated.list_offsets_response import ListOffsetsTopicResponse
    from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
    from ottla.protocol.generated.list_transactions_response import ListTransactionsResponse
    from ottla.protocol.generated.offset_for_leader_epoch_request import OffsetForLeaderTopic
    from ottla.protocol.generated.offset_for_leader_epoch_response import OffsetForLeaderTopicResult
    from ottla.protocol.generated.produce_request import ProduceRequest, TopicProduceData
    from ottla.protocol.generated.produce_response import ProduceResponse

_BATCHED_TXN_FROM = 4


def produce(
    context: RequestContext[NodePlane], request: ProduceRequest, handle: Handle[ProduceRequest, ProduceResponse]
) -> Answer[ProduceResponse]:
    """WRITE on each topic, and on the transactional id before anything else (CVE-2018-17196)."""
    transactional_id = request.transactional_id
    if _has_transactional(request) and (
        transactional_id is None or not context.allowed(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    ):
        return _refused_produce(request, request.topic_data, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    allowed, denied = split(context, request.topic_data, Operation.WRITE, Resource.TOPIC, name_of_topic)
    if not denied:
        return handle(context, request)
    refused = _refused_produce(request, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not allowed:
        return refused
    request.topic_data = allowed

    def finish(response: ProduceResponse) -> ProduceResponse:
        response.responses = [*response.responses, *refused.responses]
        return response

    answer = handle(context, request)
    if request.acks == 0:
        raise CloseConnection("a produce request with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")
    return then(answer, finish)


def _has_transactional(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and has_transactional_bit(data.records)
        for topic in paced(request.topic_data)
        for data in paced(topic.partition_data)
    )


def _refused_produce(request: ProduceRequest, topics: list[TopicProduceData], code: ErrorCode) -> ProduceResponse:
    from ottla.protocol.generated.produce_response import (
        PartitionProduceResponse,
        ProduceResponse,
        TopicProduceResponse,
    )

    if request.acks == 0:
        raise CloseConnection(f"a produce request with acks=0 failed: {code.name}")
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, int(code), -1, -1, -1) for data in paced(topic.partition_data)],
            )
            for topic in paced(topics)
        ]
    )


def fetch(
    context: RequestContext[NodePlane], request: FetchRequest, handle: Handle[FetchRequest, FetchResponse]
) -> Answer[FetchResponse]:
    """A follower needs CLUSTER_ACTION (CVE-2018-1288). A consumer's topics are checked as they are read, because a
    fetch session names them only once (`ottla.broker.handlers.fetch`).
    """
    follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if follower and not on_cluster(context, Operation.CLUSTER_ACTION):
        return _refused_fetch(request)
    return handle(context, request)


def _refused_fetch(request: FetchRequest) -> FetchResponse:
    from ottla.protocol.generated.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [PartitionData(item.partition, DENIED, -1, -1, -1, records=b"") for item in paced(topic.partitions)],
        )
        for topic in paced(request.topics)
    ]
    return FetchResponse(0, 0, 0, topics)


def init_producer_id(
    context: RequestContext[NodePlane],
    request: InitProducerIdRequest,
    handle: Handle[InitProducerIdRequest, InitProducerIdResponse],
) -> Answer[InitProducerIdResponse]:
    """WRITE on the transactional id; without one, IDEMPOTENT_WRITE or WRITE on any topic at all (KIP-679)."""
    if request.transactional_id is not None:
        if context.allowed(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return handle(context, request)
        return refusals.init_producer_id(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    authorizer = context.broker.authorizer
    if (
        on_cluster(context, Operation.IDEMPOTENT_WRITE)
        or authorizer is None
        or authorizer.allowed_somewhere(context.principal, context.client_host, Operation.WRITE, Resource.TOPIC)
    ):
        return handle(context, request)
    return refusals.init_producer_id(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def add_partitions_to_txn(
    context: RequestContext[NodePlane],
    request: AddPartitionsToTxnRequest,
    handle: Handle[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse],
) -> Answer[AddPartitionsToTxnResponse]:
    """From a broker (v4 on) CLUSTER_ACTION; from a client the transactional id, then every topic or none."""
    if context.version >= _BATCHED_TXN_FROM:
        if on_cluster(context, Operation.CLUSTER_ACTION):
            return handle(context, request)
        return refusals.add_partitions_to_txn(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.allowed(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return refusals.add_partitions_to_txn(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    _, denied = split(context, request.v3_and_below_topics, Operation.WRITE, Resource.TOPIC, name_of_topic)
    if not denied:
        return handle(context, request)
    refused = {topic.name for topic in denied}
    response = refusals.add_partitions_to_txn(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for topic in paced(response.results_by_topic_v3_and_below):
        if topic.name not in refused:
            for item in topic.results_by_partition:
                item.partition_error_code = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return response


def describe_transactions(
    context: RequestContext[NodePlane],
    request: DescribeTransactionsRequest,
    handle: Handle[DescribeTransactionsRequest, DescribeTransactionsResponse],
) -> Answer[DescribeTransactionsResponse]:
    """DESCRIBE on the transactional id; of its topics those that may be described."""
    from ottla.protocol.generated.describe_transactions_response import (
        DescribeTransactionsResponse,
        TransactionState,
    )

    allowed = [
        name
        for name in paced(request.transactional_ids, 3)
        if context.allowed(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
    ]
    code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    may = set(allowed)
    denied = [TransactionState(code, name) for name in paced(request.transactional_ids) if name not in may]
    if not allowed:
        return DescribeTransactionsResponse(transaction_states=denied)
    request.transactional_ids = allowed

    def finish(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in paced(response.transaction_states, 3):
            state.topics = [t for t in state.topics if context.allowed(Operation.DESCRIBE, Resource.TOPIC, t.topic)]
        response.transaction_states = [*response.transaction_states, *denied]
        return response

    return then(handle(context, request), finish)


def list_transactions(
    context: RequestContext[NodePlane],
    request: ListTransactionsRequest,
    handle: Handle[ListTransactionsRequest, ListTransactionsResponse],
) -> Answer[ListTransactionsResponse]:
    def finish(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            state
            for state in paced(response.transaction_states, 3)
            if context.allowed(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
        ]
        return response

    return then(handle(context, request), finish)


def may_read(context: RequestContext[NodePlane], topic: str, topic_id: Uuid) -> bool:
    """For each partition of a fetch, while there are ACLs."""
    if topic_id != ZERO_UUID:
        image = context.broker.image.topics_by_id.get(topic_id)
        return image is None or context.allowed(Operation.READ, Resource.TOPIC, image.name)
    return context.allowed(Operation.READ, Resource.TOPIC, topic)


def _list_offsets(topic: ListOffsetsTopic, code: int) -> ListOffsetsTopicResponse:
    from ottla.protocol.generated.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse

    partitions = [ListOffsetsPartitionResponse(item.partition_index, code) for item in topic.partitions]
    return ListOffsetsTopicResponse(topic.name, partitions)


def _delete_records(topic: DeleteRecordsTopic, code: int) -> DeleteRecordsTopicResult:
    from ottla.protocol.generated.delete_records_response import DeleteRecordsPartitionResult, DeleteRecordsTopicResult

    partitions = [DeleteRecordsPartitionResult(item.partition_index, -1, code) for item in topic.partitions]
    return DeleteRecordsTopicResult(topic.name, partitions)


def _epoch_end(topic: OffsetForLeaderTopic, code: int) -> OffsetForLeaderTopicResult:
    from ottla.protocol.generated.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderTopicResult

    return OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(code, item.partition) for item in topic.partitions])


def _describe_producers(topic: TopicRequest, code: int) -> TopicResponse:
    from ottla.protocol.generated.describe_producers_response import PartitionResponse, TopicResponse

    return TopicResponse(topic.name, [PartitionResponse(index, code) for index in topic.partition_indexes])


list_offsets = for_each("topics", Operation.DESCRIBE, Resource.TOPIC, _list_offsets, name=by_name, into="topics")
offset_for_leader_epoch = for_each(
    "topics",
    Operation.DESCRIBE,
    Resource.TOPIC,
    _epoch_end,
    name=by_topic,
    into="topics",
    unless=Operation.CLUSTER_ACTION,
)
delete_records = for_each("topics", Operation.DELETE, Resource.TOPIC, _delete_records, name=by_name, into="topics")
describe_producers = for_each(
    "topics", Operation.READ, Resource.TOPIC, _describe_producers, name=by_name, into="topics"
)
write_transaction = for_one(Operation.WRITE, Resource.TRANSACTIONAL_ID, "transactional_id")
add_offsets_to_txn = all_of(write_transaction, read_group)
write_txn_markers = for_cluster(Operation.ALTER, Operation.CLUSTER_ACTION)
txn_offset_commit = all_of(
    write_transaction,
    read_group,
    for_each("topics", Operation.READ, Resource.TOPIC, txn_offset_commit_topic, name=by_name, into="topics"),
)
