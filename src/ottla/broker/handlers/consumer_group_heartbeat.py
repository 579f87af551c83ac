"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, follows its assignment or leaves (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask
from ottla.coordinator.groups.caller import Caller
from ottla.metadata.features import GROUP_VERSION
from ottla.model.acls import Operation
from ottla.model.acls import ResourceType as Resource
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.planes import GroupPlane


def handle(
    context: RequestContext[GroupPlane], request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Deferred[ConsumerGroupHeartbeatResponse]:
    if not serves_consumer_protocol(context):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    may_describe = None
    if context.broker.authorizer is not None:
        may_describe = partial(context.allowed, Operation.DESCRIBE, Resource.TOPIC)
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.version, may_describe)
    return ask(
        partial(context.broker.groups.consumer_heartbeat, caller, request),
        lambda response: response,
        _failed,
    )


def serves_consumer_protocol(context: RequestContext[GroupPlane]) -> bool:
    """Whether the cluster has finalized group.version, and group.coordinator.rebalance.protocols has `consumer`."""
    protocols = context.broker.config.group_coordinator_rebalance_protocols
    return context.broker.image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in protocols


def _failed(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
