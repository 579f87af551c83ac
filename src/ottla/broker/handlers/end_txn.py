"""EndTxn: commit or abort; from v5 on the answer has the producer's next epoch (transactions v2, KIP-890)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Answer
from ottla.broker.group_replies import ask
from ottla.broker.transactions.new_producer_ids import refusal_code, with_producer_ids
from ottla.coordinator.transactions.end_transaction import Ended, EndRequest
from ottla.coordinator.transactions.metadata import EPOCH_BUMP_VERSION
from ottla.model.errors import KafkaError
from ottla.protocol.generated.end_txn_request import EndTxnRequest
from ottla.protocol.generated.end_txn_response import EndTxnResponse

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_PRODUCER_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


def handle(context: RequestContext[TransactionPlane], request: EndTxnRequest) -> Answer[EndTxnResponse]:
    """An end that uses up the epochs has a new producer id in its answer."""
    end = EndRequest(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        EPOCH_BUMP_VERSION if context.version >= _EPOCH_BUMP_FROM else 0,
    )
    knows_fenced = context.version >= _PRODUCER_FENCED_FROM

    def refused(error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(error_code=int(refusal_code(error, knows_fenced=knows_fenced)))

    start = partial(context.broker.transactions.end, end)
    return with_producer_ids(context.broker.producer_ids, lambda refuse: ask(start, _ended, refuse), refused)


def _ended(answer: Ended) -> EndTxnResponse:
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
