"""RenewDelegationToken and ExpireDelegationToken: the owner's and the renewers' business, decided by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.context import RequestContext
from ottla.broker.token_requests import tokens_allowed
from ottla.model.errors import ErrorCode
from ottla.protocol.api import response_class

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


async def handle(context: RequestContext[ControlPlane], request: Any) -> Any:
    if not tokens_allowed(context):
        response: Any = response_class(request.API_KEY)()
        response.error_code = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        response.expiry_timestamp_ms = -1
        return response
    return await context.broker.controller.submit(request, context)
