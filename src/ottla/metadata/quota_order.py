"""The order of client quotas in Kafka's map, kept without a sort for each change.

Kafka creates a new map with each delta: first the former entities in the order of the old map, then the new entities. So
within a bucket the order of the old map counts. As long as the map does not shrink, entities that share a bucket also
shared a bucket before, in the order of their insertion. A dict keeps that order, and `MetadataImage.quota_entities` sorts
by bucket on request. Only a map that shrinks joins entities of different buckets. This module then stores their order in
the old map, before the old capacity is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.metadata.image import MetadataImage, QuotaEntity
from ottla.model.java_order import map_capacity, maps_by_bucket


def begin_delta(image: MetadataImage) -> None:
    """Called before the first change of a delta."""
    size = len(image.client_quotas)
    image.client_quotas_former_capacity = image.quota_capacity
    image.client_quotas_before = size
    if map_capacity(size, max(1, size)) < image.client_quotas_former_capacity:
        _settle(image, {})


def on_entity_removed(image: MetadataImage, limits_before: Mapping[QuotaEntity, tuple[str, ...]]) -> None:
    """`limits_before` has the former limits of the entities in the delta; they are empty for a new entity."""
    if image.quota_capacity < image.client_quotas_former_capacity:
        _settle(image, limits_before)


def _settle(image: MetadataImage, limits_before: Mapping[QuotaEntity, tuple[str, ...]]) -> None:
    new_entities = [entity for entity in image.client_quotas if limits_before.get(entity) == ()]
    former_entities = [entity for entity in image.client_quotas if limits_before.get(entity) != ()]
    in_order = [*maps_by_bucket(former_entities, image.client_quotas_former_capacity), *new_entities]
    image.client_quotas = {entity: image.client_quotas[entity] for entity in in_order}
    image.client_quotas_former_capacity = 0
