"""What tests ask of a cluster's image."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage

_BROKER = 4


def broker_config(image: MetadataImage, broker_id: int) -> dict[str, str]:
    """The dynamic settings of a broker, over the cluster-wide settings."""
    return {**image.configs.get((_BROKER, ""), {}), **image.configs.get((_BROKER, str(broker_id)), {})}
