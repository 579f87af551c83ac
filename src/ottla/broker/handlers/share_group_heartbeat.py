"""ShareGroupHeartbeat: a member of a share group joins, stays, follows its assignment or leaves (KIP-932)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.groups.caller import Caller
from ottla.metadata.features import SHARE_VERSION
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.protocol.generated.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane

_LONGEST_MEMBER_ID = 36


def handle(
    context: RequestContext[GroupPlane], request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
    if not serves_share_groups(context):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not is_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.version)
    return ask(
        partial(context.broker.groups.share.heartbeat, caller, request),
        lambda response: response,
        _failed,
    )


def serves_share_groups(context: RequestContext[GroupPlane]) -> bool:
    """The cluster has finalized share.version."""
    return context.broker.image.features.get(SHARE_VERSION, 0) >= 1


def is_member_id(member_id: str | None) -> bool:
    return bool(member_id) and len(member_id or "") <= _LONGEST_MEMBER_ID


def _failed(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
