"""Requests whose answer may hold a new producer id: they wait for one only when they need it.

Most need none: a transactional id that is known keeps its producer id until its epochs are used up. Such requests are
answered while the controller is away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.broker.deferred import Deferred, Resolution
from ottla.broker.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.shard_context import ProducerIdNeeded
from ottla.model.errors import ErrorCode, KafkaError

ResponseT = TypeVar("ResponseT")
Refuse = Callable[[KafkaError], ResponseT]
Attempt = Callable[[Refuse[ResponseT]], ResponseT | Deferred[ResponseT]]
"""Gives the response, or one that follows; a refusal is made by the argument."""


def with_producer_ids(
    producer_ids: ProducerIds, attempt: Attempt[ResponseT], refused: Refuse[ResponseT]
) -> ResponseT | Deferred[ResponseT] | Awaitable[Resolution[ResponseT]]:
    """`attempt`, and again when it needed an id and had none."""
    needed = False

    def refuse(error: KafkaError) -> ResponseT:
        nonlocal needed
        needed = isinstance(error, ProducerIdNeeded)
        return refused(error)

    answer = attempt(refuse)
    # The coordinator takes an id while it decides: a request that found none has its refusal by now.
    return _again(producer_ids, attempt, refused) if needed else answer


async def _again(
    producer_ids: ProducerIds, attempt: Attempt[ResponseT], refused: Refuse[ResponseT]
) -> Resolution[ResponseT]:
    try:
        await producer_ids.refill()
    except KafkaError as error:
        return refused(error)
    answer = attempt(refused)
    return await answer if isinstance(answer, Deferred) else answer


def refusal_code(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """Older clients do not support PRODUCER_FENCED."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
