"""AddOffsetsToTxn: the partition that holds a group's offsets becomes part of the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.protocol.generated.add_offsets_to_txn_response import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_PRODUCER_FENCED_FROM = 2


def handle(
    context: RequestContext[TransactionPlane], request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred[AddOffsetsToTxnResponse]:
    partition = TopicPartition(OFFSETS_TOPIC, context.broker.groups.partition_for(request.group_id))

    def refused(error: KafkaError) -> AddOffsetsToTxnResponse:
        old = context.version < _PRODUCER_FENCED_FROM and error.code is ErrorCode.PRODUCER_FENCED
        code = ErrorCode.INVALID_PRODUCER_EPOCH if old else error.code
        return AddOffsetsToTxnResponse(error_code=int(code))

    return ask(
        lambda waiter: context.broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({partition}),
            0,
            waiter,
        ),
        lambda _: AddOffsetsToTxnResponse(),
        refused,
    )
