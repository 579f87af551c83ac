"""SyncGroup: the leader hands in the assignment; every member is answered with its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.sync_group_request import SyncGroupRequest
from ottla.protocol.generated.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_PROTOCOL_REQUIRED_FROM = 5


def handle(
    context: RequestContext[GroupPlane], request: SyncGroupRequest
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.version >= _PROTOCOL_REQUIRED_FROM and not has_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask(
        partial(context.broker.groups.sync, request),
        lambda response: response,
        lambda error: SyncGroupResponse(error_code=error.code),
    )
