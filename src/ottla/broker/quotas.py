"""Quotas around the handlers: what a request used is recorded, and a client that is over its quota is left alone.

The answer leaves at once with its throttle time, and the connection is not read for that long (Kafka mutes the channel).
A fetch over its quota is answered empty. Made only while there are quotas: a broker without them pays one test for None.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.broker.authorization.rules import then
from ottla.broker.context import Handle, RequestContext
from ottla.broker.deferred import Answer
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.security.principals import split_principal
from ottla.security.quotas import FETCH, MUTATION, PRODUCE, REQUEST, Entity, QuotaTable, Sensors

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Clock
    from ottla.protocol.generated.fetch_request import FetchRequest
    from ottla.protocol.generated.fetch_response import FetchResponse
    from ottla.protocol.primitives import Message

_STRICT_FROM = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
_EXEMPT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.ENVELOPE})


class Throttled(Protocol):
    """A response that can carry a throttle time."""

    throttle_time_ms: int


ThrottledT = TypeVar("ThrottledT", bound=Throttled)


class Quotas:
    def __init__(self, config: BrokerConfig, clock: Clock, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        self._clock = clock
        window_ms = config.quota_window_size_seconds * 1000
        self._request_limit_ms = float(window_ms)
        self._windows_s = (config.quota_window_num - 1) * window_ms / 1000
        self._sensors = Sensors(config.quota_window_num, window_ms)
        self._buckets = Sensors(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self.table = QuotaTable(quotas)

    def replace(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """Set other bounds; earlier measurements still count."""
        self.table = QuotaTable(quotas)

    def around(
        self, context: RequestContext[NodePlane], request: Any, size: int, handle: Handle[Any, Any]
    ) -> Answer[Any]:
        key = context.api_key
        if key in _EXEMPT or (key == ApiKey.FETCH and max(request.replica_id, request.replica_state.replica_id) >= 0):
            return handle(context, request)
        if key in _STRICT_FROM and self.table.has(MUTATION):
            return self._mutation(context, request, handle)
        if key == ApiKey.FETCH:
            self._limit_fetch(context, request)
        started = perf_counter()
        answer = handle(context, request)
        spent = perf_counter() - started
        wait_ms = self._used(context, REQUEST, spent * 100, self._request_limit_ms)
        if key == ApiKey.PRODUCE:
            wait_ms = max(wait_ms, self._used(context, PRODUCE, size))
            if answer is None and wait_ms > 0:
                context.connection.mute(wait_ms)
        elif key == ApiKey.FETCH:
            return then(answer, lambda response: self._fetched(context, request, response, wait_ms))
        if wait_ms <= 0:
            return answer
        return then(answer, lambda response: _throttled(context, response, wait_ms))

    def _used(self, context: RequestContext[NodePlane], kind: str, amount: float, limit_ms: float = inf) -> float:
        quota = self.table.find(kind, split_principal(context.principal)[1], context.client_id or "")
        if quota is None:
            return 0.0
        now = self._clock.monotonic_ms()
        sensor = self._sensors.rate(quota.sensor)
        sensor.record(amount, now)
        return min(sensor.throttle_ms(quota.bound, now), limit_ms)

    def _limit_fetch(self, context: RequestContext[NodePlane], request: FetchRequest) -> None:
        """Never read more than the quota's windows hold: an answer that is over it by itself could never be sent."""
        quota = self.table.find(FETCH, split_principal(context.principal)[1], context.client_id or "")
        if quota is not None:
            request.max_bytes = min(request.max_bytes, int(quota.bound * self._windows_s))

    def _fetched(
        self, context: RequestContext[NodePlane], request: FetchRequest, response: FetchResponse, wait_ms: float
    ) -> FetchResponse:
        size = sum(len(item.records) for topic in response.responses for item in topic.partitions if item.records)
        own_ms = self._used(context, FETCH, size)
        if max(own_ms, wait_ms) <= 0:
            return response
        self._used(context, FETCH, -size)  # nothing of it is sent
        empty = type(response)(session_id=response.session_id if request.session_id else 0)
        return _throttled(context, empty, max(own_ms, wait_ms))

    # Changes of the cluster

    def _mutation(
        self, context: RequestContext[NodePlane], request: Message, handle: Handle[Message, Any]
    ) -> Answer[Any]:
        quota = self.table.find(MUTATION, split_principal(context.principal)[1], context.client_id or "")
        if quota is None:
            return handle(context, request)
        bucket = self._buckets.bucket(quota.sensor)
        bucket.refill(quota.bound, self._clock.monotonic_ms())
        strict = context.version >= _STRICT_FROM[ApiKey(context.api_key)]
        if strict and bucket.tokens < 0:
            from ottla.controller.error_responses import error_response
            from ottla.model.errors import KafkaError

            response: Any = error_response(request, KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED))
            return _throttled(context, response, bucket.throttle_ms(quota.bound))
        if not getattr(request, "validate_only", False):
            bucket.tokens -= _mutations(context, request)
        wait_ms = bucket.throttle_ms(quota.bound)
        if wait_ms <= 0 or strict:
            return handle(context, request)
        return then(handle(context, request), lambda response: _throttled(context, response, wait_ms))


def _mutations(context: RequestContext[NodePlane], request: Message) -> int:
    """Partitions that a request creates or deletes."""
    from ottla.protocol.generated.create_partitions_request import CreatePartitionsRequest
    from ottla.protocol.generated.create_topics_request import CreateTopicsRequest
    from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest

    image = context.broker.image
    if isinstance(request, CreateTopicsRequest):
        default = context.broker.config.num_partitions
        return sum(
            len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default)
            for topic in request.topics
        )
    if isinstance(request, CreatePartitionsRequest):
        return sum(
            max(topic.count - len(image.topics_by_name[topic.name].partitions), 0)
            for topic in request.topics
            if topic.name in image.topics_by_name
        )
    if not isinstance(request, DeleteTopicsRequest):
        return 0
    names = [*request.topic_names, *(topic.name for topic in request.topics if topic.name is not None)]
    topics = [image.topics_by_name[name] for name in names if name in image.topics_by_name]
    topics += [image.topics_by_id[topic.topic_id] for topic in request.topics if topic.topic_id in image.topics_by_id]
    return sum(len(topic.partitions) for topic in topics)


def _throttled(context: RequestContext[NodePlane], response: ThrottledT, wait_ms: float) -> ThrottledT:
    response.throttle_time_ms = max(round(wait_ms), 1)
    context.connection.throttle_ms = max(round(wait_ms), 1)
    return response
