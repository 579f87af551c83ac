"""EndTxn: commit or abort; from v5 on the answer has the producer's next epoch (transactions v2, KIP-890)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.transactions.end_transaction import Ended, EndRequest
from ottla.coordinator.transactions.metadata import EPOCH_BUMP_VERSION, is_epoch_exhausted
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.end_txn_response import EndTxnResponse

_PRODUCER_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Deferred | Awaitable[EndTxnResponse]:
    rotates = context.version >= _EPOCH_BUMP_FROM and is_epoch_exhausted(request.producer_epoch)
    if rotates and context.broker.producer_ids.empty:
        return _refill_then_answer(context, request)
    return _answer(context, request)


async def _refill_then_answer(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """This end uses up the epochs: its answer has a new producer id."""
    await context.broker.producer_ids.refill()
    answer = _answer(context, request)
    return await answer if isinstance(answer, Deferred) else answer


def _answer(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Deferred:
    end = EndRequest(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        EPOCH_BUMP_VERSION if context.version >= _EPOCH_BUMP_FROM else 0,
    )

    def ended(answer: Ended) -> EndTxnResponse:
        return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)

    def refused(error: KafkaError) -> EndTxnResponse:
        old = context.version < _PRODUCER_FENCED_FROM and error.code is ErrorCode.PRODUCER_FENCED
        code = ErrorCode.INVALID_PRODUCER_EPOCH if old else error.code
        return EndTxnResponse(error_code=int(code))

    return ask(lambda waiter: context.broker.transactions.end(end, waiter), ended, refused)
