"""AddPartitionsToTxn: one transaction up to v3, from clients; several from v4 on, from brokers, which may only verify.

One partition that does not exist fails its whole transaction; the other partitions get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.coordinator.decisions import Waiter
from ottla.coordinator.transactions.metadata import EPOCH_BUMP_VERSION
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.pace import paced
from ottla.protocol.generated.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.generated.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_PRODUCER_FENCED_FROM = 2
_BATCHED_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


def handle(
    context: RequestContext[TransactionPlane], request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred[AddPartitionsToTxnResponse]:
    batched = context.version >= _BATCHED_FROM
    transactions = request.transactions if batched else [_as_transaction(request)]

    def finish(answers: list[Codes | KafkaError | None]) -> AddPartitionsToTxnResponse:
        results = [_result(context.version, *pair) for pair in zip(paced(transactions), answers, strict=True)]
        if batched:
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)

    return ask_all([partial(_start, context, transaction) for transaction in paced(transactions)], finish)


def _as_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        False,
        request.v3_and_below_topics,
    )


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index) for topic in paced(transaction.topics) for index in paced(topic.partitions)
    ]


def _start(
    context: RequestContext[TransactionPlane], transaction: AddPartitionsToTxnTransaction, waiter: Waiter
) -> None:
    image = context.broker.image
    partitions = _partitions(transaction)
    missing = {tp for tp in paced(partitions) if image.partition(tp.topic, tp.partition) is None}
    if missing:
        unknown, untouched = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        waiter({tp: unknown if tp in missing else untouched for tp in partitions})
        return
    coordinator = context.broker.transactions
    producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        coordinator.verify_partitions(*producer, frozenset(partitions), waiter)
    else:
        version = EPOCH_BUMP_VERSION if context.version >= _BATCHED_FROM else 0
        coordinator.add_partitions(*producer, frozenset(partitions), version, waiter)


def _result(
    version: int, transaction: AddPartitionsToTxnTransaction, answer: Codes | KafkaError | None
) -> AddPartitionsToTxnResult:
    if answer is not None and not isinstance(answer, KafkaError):
        return AddPartitionsToTxnResult(transaction.transactional_id, _by_topic(answer))
    code = int(_code(version, answer))
    topics = [
        AddPartitionsToTxnTopicResult(
            topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in paced(topic.partitions)]
        )
        for topic in paced(transaction.topics)
    ]
    return AddPartitionsToTxnResult(transaction.transactional_id, topics)


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    """Each partition once, and no topic without partitions."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in paced(codes.items()):
        topic = topics.setdefault(name, AddPartitionsToTxnTopicResult(name, []))
        topic.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, int(code)))
    return list(topics.values())


def _code(version: int, answer: KafkaError | None) -> ErrorCode:
    if answer is None:
        return ErrorCode.NONE
    old = version < _PRODUCER_FENCED_FROM and answer.code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if old else answer.code
