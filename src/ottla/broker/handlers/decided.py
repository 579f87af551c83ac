"""At the controller's listener: what the active controller decides. Any other controller answers NOT_CONTROLLER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.controller.error_responses import error_response
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


async def handle(context: RequestContext[ControlPlane], request: Message) -> Message:
    try:
        response: Message = await context.broker.controller.decide(request, context)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
        return error_response(request, error)
    return response
