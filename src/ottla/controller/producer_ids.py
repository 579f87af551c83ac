"""AllocateProducerIds: blocks of a thousand ids, never given twice."""

from __future__ import annotations

from ottla.controller.brokers import check_broker_epoch
from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import ProducerIdsRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
from ottla.protocol.primitives import Message

BLOCK_SIZE = 1000
_MAX_ID = (1 << 63) - 1


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest, _context: ControllerRequestContext
) -> Decision[Message, AllocateProducerIdsResponse]:
    check_broker_epoch(state, request.broker_id, request.broker_epoch)
    first = state.image.next_producer_id
    if first > _MAX_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "every producer id has been given away")
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + BLOCK_SIZE)
    return Decision(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), [record])
