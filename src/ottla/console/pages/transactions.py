"""Transactions: which are open, since when, and on what."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import TRANSACTION, Cluster
from ottla.client.errors import check
from ottla.console.errors import ConsoleError
from ottla.console.site import site_of
from ottla.console.web import page_response
from ottla.protocol.generated.describe_transactions_request import DescribeTransactionsRequest
from ottla.protocol.generated.describe_transactions_response import DescribeTransactionsResponse
from ottla.protocol.generated.list_transactions_request import ListTransactionsRequest
from ottla.protocol.generated.list_transactions_response import ListTransactionsResponse

_MOST = 2_000


@dataclass(frozen=True, slots=True)
class TransactionRow:
    id: str
    state: str
    producer_id: int
    coordinator: int


def list_transactions(cluster: Cluster, brokers: list[int]) -> list[TransactionRow]:
    rows = []
    for broker in brokers:
        answer = cluster.node_call("listTransactions", broker, ListTransactionsRequest(), ListTransactionsResponse)
        check(answer.error_code)
        rows += [
            TransactionRow(state.transactional_id, state.transaction_state, state.producer_id, broker)
            for state in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: (row.state != "Ongoing", row.id))[:_MOST]


async def show(request: Request) -> Response:
    site = site_of(request)
    snapshot = await site.sampler.current()
    brokers = snapshot.answering
    rows: list[TransactionRow] = []
    reason = ""
    try:
        rows = await site.gateway.ask(lambda cluster: list_transactions(cluster, brokers))
    except ConsoleError as error:
        reason = error.message
    return page_response(request, "transactions.html", "transactions", rows=rows, reason=reason)


async def show_transaction(request: Request) -> Response:
    name = request.path_params["transaction"]

    def describe(cluster: Cluster) -> DescribeTransactionsResponse:
        return cluster.coordinator_call(
            "describeTransactions",
            name,
            DescribeTransactionsRequest([name]),
            DescribeTransactionsResponse,
            lambda answer: answer.transaction_states[0].error_code,
            kind=TRANSACTION,
        )

    transaction = (await site_of(request).gateway.ask(describe)).transaction_states[0]
    if transaction.error_code:
        raise ConsoleError(f"There is no transactional id {name}.", status=404)
    started = transaction.transaction_start_time_ms
    age_s = max(0.0, time.time() - started / 1000) if started >= 0 else None
    return page_response(request, "transaction.html", "transactions", transaction=transaction, age_s=age_s)


ROUTES = [Route("/transactions", show), Route("/transactions/{transaction:path}", show_transaction)]
