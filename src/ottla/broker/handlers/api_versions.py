"""ApiVersions: exactly what this listener answers, and the features of the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.apis import TELEMETRY_APIS
from ottla.broker.context import RequestContext
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from ottla.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.generated.index import APIS

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext[ControlPlane], request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if context.version >= 3:
        context.connection.software = (request.client_software_name, request.client_software_version)
    if context.connection.gate is not None:
        context.connection.gate.on_api_versions()
    broker = context.broker
    served = context.connection.dispatcher.served
    hidden = (
        set(TELEMETRY_APIS)
        if not served.keys().isdisjoint(TELEMETRY_APIS) and not _wants_telemetry(broker.image)
        else set()
    )
    keys = [
        ApiVersion(key, 0 if key == 0 else APIS[key].min_version, api.max_version or APIS[key].max_version)
        for key, api in served.items()
        if key not in hidden
    ]
    levels = broker.image.features
    if broker.quorum.kraft_version > 0:
        levels = {**levels, KRAFT_VERSION: broker.quorum.kraft_version}
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            # Before v4 a minimum of 0 broke older clients: such features are left out (KIP-1022).
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if context.version >= 4 or low > 0
        ],
        finalized_features_epoch=broker.metadata_offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in levels.items()],
    )


def _wants_telemetry(image: MetadataImage) -> bool:
    """Without a subscription there is nothing to push, and librdkafka would write a line to stderr for every client."""
    return any(resource == RESOURCE_CLIENT_METRICS for resource, _ in image.configs)
