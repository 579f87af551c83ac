"""PushTelemetry: a client's metrics, kept until it pushes again or goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.push_telemetry_request import PushTelemetryRequest
from ottla.protocol.generated.push_telemetry_response import PushTelemetryResponse

if TYPE_CHECKING:
    from ottla.broker.planes import TelemetryPlane


def handle(context: RequestContext[TelemetryPlane], request: PushTelemetryRequest) -> PushTelemetryResponse:
    telemetry = context.broker.telemetry
    if telemetry is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    telemetry.push(
        request.client_instance_id,
        request.subscription_id,
        terminating=request.terminating,
        compression=request.compression_type,
        data=bytes(request.metrics),
    )
    return PushTelemetryResponse()
