"""At the controller's listener: what the active controller decides. Any other controller answers NOT_CONTROLLER."""

from __future__ import annotations

from typing import Any

from ottla.broker.context import RequestContext
from ottla.controller.error_responses import error_response
from ottla.model.errors import ErrorCode, KafkaError


async def handle(context: RequestContext, request: Any) -> Any:
    response = await context.broker.controller.decide(request, context)
    return error_response(request, KafkaError(ErrorCode.NOT_CONTROLLER)) if response is None else response
