"""InitProducerId: an id for an idempotent producer."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.init_producer_id_request import InitProducerIdRequest
from ottla.protocol.generated.init_producer_id_response import InitProducerIdResponse


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # There is no transaction coordinator yet (FindCoordinator says so); a client that asks anyway must not get an
        # id that nothing fences.
        code = ErrorCode.NOT_COORDINATOR if request.transactional_id else ErrorCode.INVALID_REQUEST
        return _refused(code)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await context.broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    """With neither id nor epoch: the schema's own default epoch would be a valid one."""
    return InitProducerIdResponse(error_code=int(code), producer_epoch=-1)
