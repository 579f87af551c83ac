"""DescribeCluster: the brokers and where they listen; on a controller's listener, the controllers (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, named_controller
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
from ottla.protocol.generated.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane

BROKERS = 1
CONTROLLERS = 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(context: RequestContext[ControlPlane], request: DescribeClusterRequest) -> DescribeClusterResponse:
    broker = context.broker
    here = CONTROLLERS if context.listener in broker.config.controller_listener_names else BROKERS
    if request.endpoint_type != here:
        return _refused(request.endpoint_type, here)
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=broker.cluster_id,
        controller_id=broker.quorum.leader_id if here == CONTROLLERS else named_controller(context),
        brokers=_controllers(context) if here == CONTROLLERS else _brokers(context, request),
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )


def _refused(endpoint_type: int, here: int) -> DescribeClusterResponse:
    if endpoint_type not in _NAMES:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message=f"Unsupported endpoint type {endpoint_type}",
        )
    types = _NAMES[here], _NAMES[endpoint_type]
    message = "The request was sent to an endpoint of type {}, but we wanted an endpoint of type {}".format(*types)
    return DescribeClusterResponse(error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE), error_message=message)


def _brokers(context: RequestContext[ControlPlane], request: DescribeClusterRequest) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(node.id, endpoint.host, endpoint.port, node.rack, node.fenced)
        for node in context.broker.image.brokers.values()
        if (endpoint := node.listeners.get(context.listener)) is not None
        and (request.include_fenced_brokers or not node.fenced)
    ]


def _controllers(context: RequestContext[ControlPlane]) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(node.id, endpoint.host, endpoint.port)
        for node in context.broker.image.controllers.values()
        if (endpoint := node.listeners.get(context.listener)) is not None
    ]
