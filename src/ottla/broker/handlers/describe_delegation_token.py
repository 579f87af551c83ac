"""DescribeDelegationToken: tokens that one owns, may renew, or may describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.login.token_requests import tokens_allowed
from ottla.metadata.records import DelegationTokenRecord
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from ottla.protocol.generated.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from ottla.security.principals import split_principal
from ottla.security.tokens import token_hmac

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(
    context: RequestContext[NodePlane], request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    secret = context.broker.config.delegation_token_secret_key
    if not tokens_allowed(context):
        return DescribeDelegationTokenResponse(int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    if secret is None:
        return DescribeDelegationTokenResponse(int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in paced(request.owners)}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, secret)
            for token in paced(list(context.broker.image.delegation_tokens.values()), 10)
            if _visible(context, token, owners)
        ]
    )


def _visible(context: RequestContext[NodePlane], token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    concerned = {token.owner, *token.renewers}
    if owners is not None and concerned.isdisjoint(owners):
        return False
    return (
        context.principal in concerned
        or context.allowed(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
        or context.allowed(Operation.DESCRIBE_TOKENS, Resource.USER, token.owner)
    )


def _described(token: DelegationTokenRecord, secret: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *split_principal(token.owner), *split_principal(token.requester), token.issue_timestamp,
        token.expiration_timestamp, token.max_timestamp, token.token_id, token_hmac(secret, token.token_id),
        [DescribedDelegationTokenRenewer(*split_principal(renewer)) for renewer in token.renewers],
    )  # fmt: skip
