"""ListTransactions: the transactional ids of this node's coordinator, filtered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.patterns import compile_pattern
from ottla.coordinator.transactions.listing import Filters
from ottla.coordinator.transactions.states import STATES_BY_NAME
from ottla.model.pace import paced
from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
from ottla.protocol.generated.list_transactions_response import ListTransactionsResponse, TransactionState

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane


def handle(
    context: RequestContext[TransactionPlane], request: ListTransactionsRequest
) -> ListTransactionsResponse | Deferred[ListTransactionsResponse]:
    names = request.state_filters
    unknown = [name for name in dict.fromkeys(paced(names)) if name not in STATES_BY_NAME]
    pattern = request.transactional_id_pattern
    matches = compile_pattern(pattern) if pattern else None
    filters = Filters(
        frozenset(request.producer_id_filters) if request.producer_id_filters else None,
        frozenset(STATES_BY_NAME[name] for name in paced(names) if name in STATES_BY_NAME) if names else None,
        request.duration_filter,
    )

    def finish(states: list[TransactionState]) -> ListTransactionsResponse:
        matching = [state for state in paced(states, 2) if matches is None or matches(state.transactional_id)]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=matching)

    return ask(
        partial(context.broker.transactions.list_transactions, filters),
        finish,
        lambda error: ListTransactionsResponse(error_code=int(error.code)),
    )
