"""Producer ids: handed out from a block that the controller has given this broker; the next block is fetched ahead.

Ids are never used twice: a block that is not used up at a restart is lost, not given again. There is one request to the
controller at a time. A caller that finds no id starts that request, so that its next try finds an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerId
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse

log = get_logger(__name__)

Allocate = Callable[[AllocateProducerIdsRequest], Awaitable[AllocateProducerIdsResponse]]

_AHEAD = 100
"""Ids that are left when the next block is requested: a tenth of a block, as in Kafka."""
_PATIENCE_S = 2.0
"""How long a client's request waits for an id; after that the client gets an error to retry."""


class ProducerIds:
    def __init__(self, allocate: Allocate, request: Callable[[], AllocateProducerIdsRequest]) -> None:
        self._allocate = allocate
        self._request = request
        self._ids = range(0)
        self._next_ids = range(0)
        self._fetching: asyncio.Future[None] | None = None

    def take(self) -> ProducerId | None:
        """An unused id; None while a new block is requested from the controller."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, range(0)
        if len(self._ids) <= _AHEAD and not self._next_ids:
            self._fetch_ahead()
        if not self._ids:
            return None
        taken, self._ids = self._ids[0], self._ids[1:]
        return ProducerId(taken)

    async def refill(self) -> None:
        """Wait for the block that is on its way. KafkaError(COORDINATOR_LOAD_IN_PROGRESS), which every client retries,
        when the controller does not give one in time."""
        if not self._ids and not self._next_ids:
            await asyncio.wait([self._fetch_ahead()], timeout=_PATIENCE_S)
        if not self._ids and not self._next_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Producer ids are being fetched; try again")

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    def _fetch_ahead(self) -> asyncio.Future[None]:
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch())
            self._fetching.add_done_callback(self._on_fetched)
        return self._fetching

    async def _fetch(self) -> None:
        response = await self._allocate(self._request())
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        start = response.producer_id_start
        self._next_ids = range(start, start + response.producer_id_len)

    def _on_fetched(self, fetching: asyncio.Future[None]) -> None:
        self._fetching = None
        error = None if fetching.cancelled() else fetching.exception()
        if error is not None:
            log.warning("producer_ids.not_fetched", reason=str(error))
