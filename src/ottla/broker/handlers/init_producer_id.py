"""InitProducerId: an id for an idempotent producer; for a transactional one, the coordinator's answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer
from ottla.broker.group_replies import ask
from ottla.broker.transactions.new_producer_ids import Refuse, refusal_code, with_producer_ids
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.init_producer_id import InitRequest, ProducerIdAndEpoch
from ottla.coordinator.transactions.shard_context import ProducerIdNeeded
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_PRODUCER_FENCED_FROM = 4


def handle(context: RequestContext[TransactionPlane], request: InitProducerIdRequest) -> Answer[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    knows_fenced = context.version >= _PRODUCER_FENCED_FROM

    def refused(error: KafkaError) -> InitProducerIdResponse:
        return _refused(refusal_code(error, knows_fenced=knows_fenced))

    producer_ids = context.broker.producer_ids
    if request.transactional_id is None:
        return with_producer_ids(producer_ids, partial(_idempotent, producer_ids), refused)
    start = partial(context.broker.transactions.init_producer_id, _init_request(request.transactional_id, request))
    return with_producer_ids(producer_ids, lambda refuse: ask(start, _answer, refuse), refused)


def _idempotent(producer_ids: ProducerIds, refuse: Refuse[InitProducerIdResponse]) -> InitProducerIdResponse:
    producer_id = producer_ids.take()
    if producer_id is None:
        return refuse(ProducerIdNeeded())
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _init_request(transactional_id: str, request: InitProducerIdRequest) -> InitRequest:
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    return InitRequest(
        transactional_id, request.transaction_timeout_ms, expected, request.enable2_pc, request.keep_prepared_txn
    )


def _answer(producer: ProducerIdAndEpoch) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    """With neither id nor epoch: the schema's own default epoch would be a valid one."""
    return InitProducerIdResponse(error_code=int(code), producer_epoch=NO_PRODUCER_EPOCH)
