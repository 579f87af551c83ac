"""DescribeClientQuotas: the limits whose entity a filter matches, in the order of Kafka's map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.metadata.image import QuotaEntity
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.model.pace import paced
from ottla.protocol.generated.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.generated.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
_TYPES = ("user", "client-id", "ip")
_ANY = object()


def handle(context: RequestContext[NodePlane], request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        quota_filter = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)
    image = context.broker.image
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            EntryData(_parts(entity), [ValueData(key, value) for key, value in image.client_quotas[entity].items()])
            for entity in paced(image.quota_entities(), 5)
            if _matches(entity, quota_filter, strict=request.strict)
        ],
    )


def _parts(entity: QuotaEntity) -> list[EntityData]:
    names = dict(entity)
    return [EntityData(kind, names[kind]) for kind in strings_in_java_order(names, initial_capacity=len(names))]


def _filter(components: list[ComponentData]) -> dict[str, object]:
    quota_filter: dict[str, object] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in quota_filter:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        quota_filter[kind] = _match(component)
    if "ip" in quota_filter and len(quota_filter) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return quota_filter


def _match(component: ComponentData) -> object:
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        return component.match
    if component.match_type not in (DEFAULT, SPECIFIED):
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match is not None:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise _invalid(f"Request specified {name}, but also specified a match string.")
    return None if component.match_type == DEFAULT else _ANY


def _matches(entity: QuotaEntity, quota_filter: dict[str, object], *, strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(quota_filter):
        return False
    return all(kind in parts and (name is _ANY or parts[kind] == name) for kind, name in quota_filter.items())


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
