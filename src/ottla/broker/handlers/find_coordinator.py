"""FindCoordinator: who coordinates a group, a transactional id or a share partition. Makes their topic on demand."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.context import RequestContext
from ottla.broker.topics.internal_topics import create_topic, offsets_topic, share_state_topic, transaction_state_topic
from ottla.coordinator.shards import Shards
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE, NodeId, uuid_from_str
from ottla.model.pace import paced
from ottla.model.topic_names import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.generated.create_topics_request import CreatableTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.planes import CoordinatorPlane
    from ottla.coordinator.runtime import MachineT

GROUP = 0
TRANSACTION = 1
SHARE = 2
_BATCHED_FROM = 4
_SHARE_FROM = 6


class _Location(NamedTuple):
    error: ErrorCode
    node_id: NodeId = NO_NODE
    host: str = ""
    port: int = -1


_NOT_AVAILABLE = _Location(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def handle(
    context: RequestContext[CoordinatorPlane], request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if context.version < _BATCHED_FROM:
        request.coordinator_keys = [request.key]
    if request.coordinator_keys:
        broker, topics = context.broker, context.broker.image.topics_by_name
        if request.key_type == GROUP and OFFSETS_TOPIC not in topics and not broker.groups.shards.creating_topic:
            topic = offsets_topic(broker.groups.settings)
            return _create_then_answer(context, request, broker.groups.shards, topic)
        if request.key_type == TRANSACTION and TRANSACTION_STATE_TOPIC not in topics:
            transactions = broker.transactions
            if not transactions.shards.creating_topic:
                topic = transaction_state_topic(transactions.settings)
                return _create_then_answer(context, request, transactions.shards, topic)
        if _asks_for_share_state(context, request) and SHARE_GROUP_STATE_TOPIC not in topics:
            coordinator = broker.shares.coordinator
            if not coordinator.shards.creating_topic:
                topic = share_state_topic(coordinator.settings)
                return _create_then_answer(context, request, coordinator.shards, topic)
    return _answer(context, request)


def _asks_for_share_state(context: RequestContext[CoordinatorPlane], request: FindCoordinatorRequest) -> bool:
    if request.key_type != SHARE or context.version < _SHARE_FROM:
        return False
    return any(_is_share_key(key) for key in paced(request.coordinator_keys, 3))


async def _create_then_answer(
    context: RequestContext[CoordinatorPlane],
    request: FindCoordinatorRequest,
    shards: Shards[MachineT],
    topic: CreatableTopic,
) -> FindCoordinatorResponse:
    """Other requests in the meantime get COORDINATOR_NOT_AVAILABLE and are retried, as with Kafka."""
    await create_topic(context.broker, shards, topic)
    return _answer(context, request)


def _answer(context: RequestContext[CoordinatorPlane], request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version < _BATCHED_FROM:
        location = _find(context, request.key_type, request.key)
        message = location.error.name if location.error is ErrorCode.NONE else location.error.message
        return FindCoordinatorResponse(0, location.error, message, location.node_id, location.host, location.port)
    known_type = request.key_type in (GROUP, TRANSACTION, SHARE)
    message = "" if known_type else ErrorCode.INVALID_REQUEST.message
    coordinators = []
    for key in paced(request.coordinator_keys, 10):
        location = _find(context, request.key_type, key)
        coordinators.append(Coordinator(key, location.node_id, location.host, location.port, location.error, message))
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(context: RequestContext[CoordinatorPlane], key_type: int, key: str) -> _Location:
    if key_type == GROUP:
        return _leader(context, OFFSETS_TOPIC, context.broker.groups.partition_for(key))
    if key_type == TRANSACTION:
        return _leader(context, TRANSACTION_STATE_TOPIC, context.broker.transactions.partition_for(key))
    if key_type == SHARE and context.version >= _SHARE_FROM and _is_share_key(key):
        return _leader(context, SHARE_GROUP_STATE_TOPIC, context.broker.shares.coordinator.partition_for(key))
    return _Location(ErrorCode.INVALID_REQUEST)


def _leader(context: RequestContext[CoordinatorPlane], topic: str, partition: int) -> _Location:
    image = context.broker.image
    registration = image.partition(topic, partition)
    node = image.brokers.get(registration.leader) if registration is not None else None
    endpoint = node.listeners.get(context.listener) if node is not None and not node.fenced else None
    if node is None or endpoint is None:
        return _NOT_AVAILABLE
    return _Location(ErrorCode.NONE, node.id, endpoint.host, endpoint.port)


def _is_share_key(key: str) -> bool:
    """group:topic id:partition; the group may itself hold colons."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdecimal():
        return False
    try:
        uuid_from_str(parts[1])
    except ValueError:
        return False
    return True
