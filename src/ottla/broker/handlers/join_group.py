"""JoinGroup: enter a group, or ask it to rebalance; answered when the join phase ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.groups.caller import Caller
from ottla.protocol.generated.join_group_request import JoinGroupRequest
from ottla.protocol.generated.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_REBALANCE_TIMEOUT_FROM = 1
_NULL_PROTOCOL_NAME_FROM = 7


def handle(
    context: RequestContext[GroupPlane], request: JoinGroupRequest
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    if context.version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    # The host is kept as Java prints an address: tools show it, and records of both servers agree.
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.version)

    def answer(response: JoinGroupResponse) -> JoinGroupResponse:
        """No protocol is null where the version has a null, and empty before that."""
        nothing = None if context.version >= _NULL_PROTOCOL_NAME_FROM else ""
        response.protocol_name = response.protocol_name or nothing
        return response

    return ask(
        partial(context.broker.groups.join, caller, request),
        answer,
        lambda error: answer(JoinGroupResponse(error_code=error.code)),
    )
