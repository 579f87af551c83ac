"""Producer ids for idempotent producers: handed out from a block that the controller has given this broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerId
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse

Allocate = Callable[[AllocateProducerIdsRequest], Awaitable[AllocateProducerIdsResponse]]


class ProducerIds:
    """Ids are never used twice: a block that is not used up at a restart is lost, not given again."""

    def __init__(self, allocate: Allocate, request: Callable[[], AllocateProducerIdsRequest]) -> None:
        self._allocate = allocate
        self._request = request
        self._next: ProducerId = 0
        self._end: ProducerId = 0

    def take(self) -> ProducerId | None:
        """An id from the current block, or None when a new block is needed."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    @property
    def empty(self) -> bool:
        """A new block is needed before the next id can be taken."""
        return self._next >= self._end

    async def refill(self) -> None:
        """Have at least one id to take, for now."""
        while self.empty:
            response = await self._allocate(self._request())
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            self._next = response.producer_id_start
            self._end = response.producer_id_start + response.producer_id_len

    async def next(self) -> ProducerId:
        taken = self.take()
        while taken is None:
            await self.refill()
            taken = self.take()
        return taken
