"""DescribeTransactions: where a transactional id stands, as its coordinator sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.model.errors import KafkaError
from ottla.model.pace import paced
from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
from ottla.protocol.generated.describe_transactions_response import DescribeTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane


def handle(
    context: RequestContext[TransactionPlane], request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Deferred[DescribeTransactionsResponse]:
    transactional_ids = request.transactional_ids

    def finish(answers: list[TransactionState | KafkaError]) -> DescribeTransactionsResponse:
        states = [_state(*pair) for pair in zip(paced(transactional_ids), answers, strict=True)]
        return DescribeTransactionsResponse(transaction_states=states)

    describe = context.broker.transactions.describe
    return ask_all([partial(describe, transactional_id) for transactional_id in paced(transactional_ids)], finish)


def _state(transactional_id: str, answer: TransactionState | KafkaError) -> TransactionState:
    if isinstance(answer, KafkaError):
        return TransactionState(int(answer.code), transactional_id)
    return answer
