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
    response: Message | None = await context.broker.controller.decide(request, context)
    return error_response(request, KafkaError(ErrorCode.NOT_CONTROLLER)) if response is None else response
