"""CreateDelegationToken: for the requester, or for an owner for whom the requester may create tokens.

A login by token is always `User:NAME`, so an owner of another type is refused: the ACLs for `User:NAME` would not be
checked. Apache Kafka 4.3.1 accepts such an owner, and the token then logs in as a user for whom tokens are denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.login.token_requests import tokens_allowed
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.protocol.generated.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.security.principals import USER_TYPE, split_principal

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


async def handle(
    context: RequestContext[ControlPlane], request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = context.principal
    owner = (
        f"{request.owner_principal_type}:{request.owner_principal_name}" if request.owner_principal_name else requester
    )
    code = ErrorCode.NONE
    if not tokens_allowed(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != requester and not context.allowed(Operation.CREATE_TOKENS, Resource.USER, owner):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif split_principal(owner)[0] != USER_TYPE:
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code is not ErrorCode.NONE:
        return CreateDelegationTokenResponse(
            int(code), *split_principal(owner), *split_principal(requester), -1, -1, -1
        )
    response: CreateDelegationTokenResponse = await context.broker.controller.submit(request, context)
    return response
