"""DescribeCluster: the brokers (or controllers) and where they listen."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.describe_cluster_request import DescribeClusterRequest
from ottla.protocol.generated.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        mismatched = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if mismatched else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            if mismatched
            else f"Unsupported endpoint type {request.endpoint_type}"
        )
        return DescribeClusterResponse(error_code=int(code), error_message=message)
    broker = context.broker
    wanted = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(node.id, endpoint.host, endpoint.port, node.rack, node.fenced)
            for node in broker.image.brokers.values()
            if (endpoint := node.listeners.get(context.listener)) is not None
            and (request.include_fenced_brokers or not node.fenced)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if wanted else NOT_ASKED,
    )
