"""GetTelemetrySubscriptions: which metrics a client shall push, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.telemetry.subscriptions import ACCEPTED_COMPRESSION, Client
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from ottla.protocol.generated.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse

if TYPE_CHECKING:
    from ottla.broker.planes import TelemetryPlane


def handle(
    context: RequestContext[TelemetryPlane], request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = context.broker.telemetry
    if telemetry is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    connection = context.connection
    client = Client(context.client_id or "", *connection.software, connection.client_host, connection.client_port)
    instance_id, subscription = telemetry.subscribe(context.broker.image, request.client_instance_id, client)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION),
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
