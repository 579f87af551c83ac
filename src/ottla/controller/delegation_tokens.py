"""Delegation tokens (KIP-48): made, renewed and ended as records of the metadata log.

A token's secret is the HMAC of its id under `delegation.token.secret.key`; it is in no record, every node computes it.
Expired tokens are removed by the controller's tick.
"""

from __future__ import annotations

import hmac

from ottla.controller.state import ControllerRequestContext, ControllerState
from ottla.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.model.decision import Decision
from ottla.model.errors import ErrorCode
from ottla.model.ids import uuid_to_str
from ottla.protocol.generated.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.protocol.generated.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.protocol.generated.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.protocol.generated.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.protocol.generated.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.protocol.generated.renew_delegation_token_response import RenewDelegationTokenResponse
from ottla.protocol.primitives import Message
from ottla.security.principals import USER_TYPE, split_principal
from ottla.security.tokens import token_hmac

_LONG_MAX = (1 << 63) - 1


def create_token(
    state: ControllerState, request: CreateDelegationTokenRequest, context: ControllerRequestContext
) -> Decision[Message, CreateDelegationTokenResponse]:
    owner = context.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    response = CreateDelegationTokenResponse(
        0, *split_principal(owner), *split_principal(context.principal), -1, -1, -1
    )
    secret = state.rules.static.delegation_token_secret_key
    if secret is None:
        response.error_code = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return Decision(response)
    types = {split_principal(owner)[0], *(renewer.principal_type for renewer in request.renewers)}
    if types != {USER_TYPE}:  # a login by token is always User:NAME
        response.error_code = int(ErrorCode.INVALID_PRINCIPAL_TYPE)
        return Decision(response)
    now = state.clock.time_ms()
    longest = state.rules.static.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        longest = min(longest, request.max_lifetime_ms)
    ends = min(now + longest, _LONG_MAX)
    expires = min(ends, now + state.rules.static.delegation_token_expiry_time_ms)
    token_id = uuid_to_str(state.new_uuid())
    renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
    response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms = now, expires, ends
    response.token_id, response.hmac = token_id, token_hmac(secret, token_id)
    return Decision(response, [DelegationTokenRecord(owner, context.principal, renewers, now, ends, expires, token_id)])


def renew_token(
    state: ControllerState, request: RenewDelegationTokenRequest, context: ControllerRequestContext
) -> Decision[Message, RenewDelegationTokenResponse]:
    token, code = _find(state, bytes(request.hmac), context.principal, check_expiry=True)
    if token is None:
        return Decision(RenewDelegationTokenResponse(int(code), -1))
    period = state.rules.static.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period = min(period, request.renew_period_ms)
    expires = min(token.max_timestamp, state.clock.time_ms() + period)
    return Decision(RenewDelegationTokenResponse(0, expires), [_with_expiry(token, expires)])


def expire_token(
    state: ControllerState, request: ExpireDelegationTokenRequest, context: ControllerRequestContext
) -> Decision[Message, ExpireDelegationTokenResponse]:
    at_once = request.expiry_time_period_ms < 0
    token, code = _find(state, bytes(request.hmac), context.principal, check_expiry=not at_once)
    if token is None:
        return Decision(ExpireDelegationTokenResponse(int(code), -1))
    now = state.clock.time_ms()
    if at_once:
        return Decision(ExpireDelegationTokenResponse(0, now), [RemoveDelegationTokenRecord(token.token_id)])
    expires = min(token.max_timestamp, now + request.expiry_time_period_ms)
    return Decision(ExpireDelegationTokenResponse(0, expires), [_with_expiry(token, expires)])


def expired_tokens(state: ControllerState) -> list[Message]:
    """Records that remove expired tokens. Until then brokers refuse such tokens."""
    now = state.clock.time_ms()
    return [
        RemoveDelegationTokenRecord(token.token_id)
        for token in state.image.delegation_tokens.values()
        if token.max_timestamp < now or token.expiration_timestamp < now
    ]


def _find(
    state: ControllerState, secret: bytes, principal: str, *, check_expiry: bool
) -> tuple[DelegationTokenRecord | None, ErrorCode]:
    key = state.rules.static.delegation_token_secret_key
    if key is None:
        return None, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    matching_token: DelegationTokenRecord | None = None
    for token in state.image.delegation_tokens.values():
        if hmac.compare_digest(token_hmac(key, token.token_id), secret):
            matching_token = token
    if matching_token is None:
        return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    now = state.clock.time_ms()
    expired = matching_token.max_timestamp < now or matching_token.expiration_timestamp < now
    mine = principal == matching_token.owner or principal in matching_token.renewers
    if check_expiry and expired:
        return None, ErrorCode.DELEGATION_TOKEN_EXPIRED
    return (matching_token, ErrorCode.NONE) if mine else (None, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _with_expiry(token: DelegationTokenRecord, expires: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        token.owner, token.requester, list(token.renewers), token.issue_timestamp, token.max_timestamp, expires,
        token.token_id,
    )  # fmt: skip
