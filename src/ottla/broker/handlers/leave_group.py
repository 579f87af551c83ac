"""LeaveGroup: members go; from v3 on several at once, each with its own error."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_BATCHED_FROM = 3


def handle(
    context: RequestContext[GroupPlane], request: LeaveGroupRequest
) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    single = context.version < _BATCHED_FROM
    if single:
        request.members = [MemberIdentity(request.member_id)]

    def answer(response: LeaveGroupResponse) -> LeaveGroupResponse:
        if single and response.members:
            return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
        return response

    return ask(
        partial(context.broker.groups.leave, request),
        answer,
        lambda error: LeaveGroupResponse(error_code=error.code),
    )
