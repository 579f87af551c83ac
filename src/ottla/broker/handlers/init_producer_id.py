"""InitProducerId: an id for an idempotent producer; for a transactional one, the coordinator's answer."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.transactions.init_producer_id import InitRequest, ProducerIdAndEpoch
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse

_PRODUCER_FENCED_FROM = 4


def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if context.broker.producer_ids.empty:
        return _refill_then_answer(context, request)
    return _answer(context, request)


async def _refill_then_answer(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        await context.broker.producer_ids.refill()
    except KafkaError as error:
        return _refused(error.code)
    answer = _answer(context, request)
    return await answer if isinstance(answer, Deferred) else answer


def _answer(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | Deferred:
    if request.transactional_id is None:
        producer_id = context.broker.producer_ids.take()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    init = InitRequest(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    return ask(
        lambda waiter: context.broker.transactions.init_producer_id(init, waiter),
        lambda given: InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch),
        lambda error: _refused(_code(context.version, error.code)),
    )


def _code(version: int, code: ErrorCode) -> ErrorCode:
    """Older clients do not know PRODUCER_FENCED."""
    old = version < _PRODUCER_FENCED_FROM and code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if old else code


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    """With neither id nor epoch: the schema's own default epoch would be a valid one."""
    return InitProducerIdResponse(error_code=int(code), producer_epoch=NO_PRODUCER_EPOCH)
