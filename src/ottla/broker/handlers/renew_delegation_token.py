"""RenewDelegationToken and ExpireDelegationToken: the owner's and the renewers' business, decided by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.login.token_requests import tokens_allowed
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.protocol.generated.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.protocol.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.protocol.generated.renew_delegation_token_response import RenewDelegationTokenResponse
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


async def handle(
    context: RequestContext[ControlPlane], request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest
) -> Message:
    if not tokens_allowed(context):
        code = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if isinstance(request, RenewDelegationTokenRequest):
            return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    response: Message = await context.broker.controller.submit(request, context)
    return response
