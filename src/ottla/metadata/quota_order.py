"""The order of client quotas in Kafka's map, kept without a sort for each change.

Kafka makes a new map with each delta: first what was there, in the order of the old map, then what is new. So within one
bucket the order of the old map counts. As long as the map does not shrink, entities that share a bucket shared one
before, and their order is that in which they came: a dict keeps it by itself, and `MetadataImage.quota_entities` sorts by
bucket when somebody asks. Only a map that shrinks brings entities of different buckets together. Their order in the old
map is then written down here, before the old capacity is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.metadata.image import MetadataImage, QuotaEntity
from ottla.model.java_order import map_capacity, maps_by_bucket


def begin_delta(image: MetadataImage) -> None:
    """Before the first change of a delta."""
    size = len(image.client_quotas)
    image.client_quotas_former_capacity = image.quota_capacity
    image.client_quotas_before = size
    if map_capacity(size, max(1, size)) < image.client_quotas_former_capacity:
        _settle(image, {})


def on_entity_removed(image: MetadataImage, limits_before: Mapping[QuotaEntity, tuple[str, ...]]) -> None:
    """`limits_before`: of the entities that the delta has changed so far; an entity that is new had none."""
    if image.quota_capacity < image.client_quotas_former_capacity:
        _settle(image, limits_before)


def _settle(image: MetadataImage, limits_before: Mapping[QuotaEntity, tuple[str, ...]]) -> None:
    new_entities = [entity for entity in image.client_quotas if limits_before.get(entity) == ()]
    former_entities = [entity for entity in image.client_quotas if limits_before.get(entity) != ()]
    in_order = [*maps_by_bucket(former_entities, image.client_quotas_former_capacity), *new_entities]
    image.client_quotas = {entity: image.client_quotas[entity] for entity in in_order}
    image.client_quotas_former_capacity = 0
