"""Who leads: the hint that Produce and Fetch answers carry beside a leadership error (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.context import RequestContext
from ottla.model.ids import ZERO_UUID, LeaderEpoch, NodeId, Uuid

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane

EndpointT = TypeVar("EndpointT")


def current_leader(
    context: RequestContext[NodePlane], topic: str, topic_id: Uuid, partition: int
) -> tuple[NodeId, LeaderEpoch]:
    image = context.broker.image
    topic_image = image.topics_by_id.get(topic_id) if topic_id != ZERO_UUID else image.topics_by_name.get(topic)
    registration = topic_image.partitions.get(partition) if topic_image is not None else None
    return (-1, -1) if registration is None else (registration.leader, registration.leader_epoch)


def leader_endpoints(
    context: RequestContext[NodePlane],
    leaders: Iterable[NodeId],
    endpoint: Callable[[NodeId, str, int, str | None], EndpointT],
) -> list[EndpointT]:
    """Where those leaders listen, under the listener that the client came in by."""
    endpoints = []
    for leader in leaders:
        broker = context.broker.image.brokers.get(leader)
        listener = broker.listeners.get(context.listener) if broker is not None else None
        if broker is not None and listener is not None:
            endpoints.append(endpoint(leader, listener.host, listener.port, broker.rack))
    return endpoints
