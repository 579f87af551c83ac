"""ListConfigResources: what has, or may have, settings of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.model.errors import ErrorCode
from ottla.model.pace import paced
from ottla.protocol.generated.list_config_resources_request import ListConfigResourcesRequest
from ottla.protocol.generated.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

SUPPORTED = (
    RESOURCE_TOPIC,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
)


def handle(context: RequestContext[NodePlane], request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    resource_types = request.resource_types or (SUPPORTED if context.version >= 1 else (RESOURCE_CLIENT_METRICS,))
    if not set(SUPPORTED).issuperset(resource_types):
        return ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, resource_type)
            for resource_type in dict.fromkeys(resource_types)
            for name in paced(_names(context.broker.image, resource_type))
        ]
    )


def _names(image: MetadataImage, resource_type: int) -> list[str]:
    if resource_type == RESOURCE_TOPIC:
        return list(image.topics_by_name)
    if resource_type in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(node_id) for node_id in image.brokers]
    return [name for kind, name in image.configs if kind == resource_type]
