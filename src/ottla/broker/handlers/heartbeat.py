"""Heartbeat: a member lives, and learns whether it must rejoin."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: HeartbeatRequest
) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
    return ask(
        partial(context.broker.groups.heartbeat, request),
        lambda response: response,
        _refused,
    )


def _refused(error: KafkaError) -> HeartbeatResponse:
    # Sessions begin when the load is done: until then a beat is neither needed nor wrong.
    loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
