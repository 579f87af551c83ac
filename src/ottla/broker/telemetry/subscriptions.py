"""Client telemetry (KIP-714): who may push which metrics how often, and what they pushed last.

Subscriptions are the CLIENT_METRICS resources of the metadata. The receiver is bounded in clients and in series; a
client that has been silent for three intervals is forgotten. The receiver exists if the node has an HTTP listener to
report the metrics on. Other nodes do not advertise the two APIs, like an Apache Kafka without a receiver.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from ottla.broker.telemetry.otlp import Point, points
from ottla.env.config.overrides import client_patterns, resolve_client_metrics
from ottla.env.seams import Clock
from ottla.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid, uuid_to_str
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress

ACCEPTED_COMPRESSION = (ZSTD, LZ4, GZIP, SNAPPY)
DEFAULT_INTERVAL_MS = 300_000
MAX_INSTANCES = 16_384
MAX_SERIES = 20_000
"""Of all clients together."""
_FORGOTTEN_AFTER = 3
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Client:
    """What a subscription can match."""

    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int

    def facts(self, instance_id: Uuid) -> dict[str, str]:
        return {
            "client_instance_id": uuid_to_str(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.host,
            "client_source_port": str(self.port),
        }


@dataclass(frozen=True, slots=True)
class Subscription:
    id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class Instance:
    client: Client
    subscription: Subscription
    last_get_ms: float
    last_push_ms: float = float("-inf")
    terminating: bool = False
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)


class ClientTelemetry:
    def __init__(self, clock: Clock, new_id: Callable[[], Uuid], max_bytes: int) -> None:
        self._clock = clock
        self._new_id = new_id
        self.max_bytes = max_bytes
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()
        self._series = 0

    def subscribe(self, image: MetadataImage, instance_id: Uuid, client: Client) -> tuple[Uuid, Subscription]:
        now = self._clock.monotonic_ms()
        instance_id = self._new_id() if instance_id == ZERO_UUID else instance_id
        subscription = subscription_for(image.configs, instance_id, client)
        instance = self._instances.get(instance_id)
        if instance is None:
            self._add(instance_id, Instance(client, subscription, now))
        else:
            unchanged = instance.subscription.id == subscription.id
            early = now - max(instance.last_get_ms, instance.last_push_ms) < instance.subscription.interval_ms
            if unchanged and early and instance.last_push_ms < instance.last_get_ms:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Asked again before the push interval was over")
            instance.subscription, instance.last_get_ms = subscription, now
        return instance_id, subscription

    def push(
        self, instance_id: Uuid, subscription_id: int, *, terminating: bool, compression: int, data: bytes
    ) -> None:
        instance = self._instances.get(instance_id)
        if instance_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A client instance id is missing")
        if instance is None or instance.subscription.id != subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if instance.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The client has sent its terminating push")
        if compression not in (NONE, *ACCEPTED_COMPRESSION):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(data) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        now = self._clock.monotonic_ms()
        # A first push may come early, as clients spread theirs over the interval; so may the last.
        if not terminating and now - instance.last_push_ms < instance.subscription.interval_ms / 2:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._keep(instance, self._decoded(compression, data))
        instance.last_push_ms, instance.terminating = now, terminating
        self._instances.move_to_end(instance_id)
        if terminating:
            self._forget(instance_id)

    def _decoded(self, compression: int, data: bytes) -> list[Point]:
        try:
            return points(bytes(data) if compression == NONE else decompress(compression, data, self.max_bytes * 8))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error

    def _keep(self, instance: Instance, pushed: list[Point]) -> None:
        for point in pushed:
            key = (point.name, point.labels)
            if key not in instance.series:
                if self._series >= MAX_SERIES:
                    continue
                self._series += 1
            before = instance.series.get(key, 0.0) if point.is_delta else 0.0
            instance.series[key] = before + point.value

    def _add(self, instance_id: Uuid, instance: Instance) -> None:
        self._instances[instance_id] = instance
        if len(self._instances) > MAX_INSTANCES:
            self._forget(next(iter(self._instances)))

    def _forget(self, instance_id: Uuid) -> None:
        gone = self._instances.pop(instance_id)
        self._series -= len(gone.series)

    def samples(self) -> Iterator[tuple[Client, str, tuple[tuple[str, str], ...], float]]:
        """The last value of every series, of the clients that are still there."""
        now = self._clock.monotonic_ms()
        for instance_id, instance in list(self._instances.items()):
            latest = max(instance.last_get_ms, instance.last_push_ms)
            if now - latest > _FORGOTTEN_AFTER * instance.subscription.interval_ms:
                self._forget(instance_id)
                continue
            for (name, labels), value in instance.series.items():
                yield instance.client, name, labels, value


def subscription_for(
    configs: Mapping[tuple[int, str], Mapping[str, str]], instance_id: Uuid, client: Client
) -> Subscription:
    """All subscriptions that match the client, as one: the shortest interval, all their metrics."""
    facts = client.facts(instance_id)
    intervals: list[int] = []
    metrics: list[str] = []
    for (resource, _), overrides in sorted(configs.items()):
        if resource != RESOURCE_CLIENT_METRICS:
            continue
        settings = resolve_client_metrics(overrides)
        patterns = client_patterns(settings.match)
        if all(pattern.fullmatch(facts[fact]) for fact, pattern in patterns.items()):
            intervals.append(settings.interval_ms)
            metrics += settings.metrics
    prefixes = (_ALL,) if _ALL in metrics else tuple(sorted(set(metrics)))
    interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
    identity = crc32(repr((prefixes, interval_ms)).encode())
    return Subscription(identity - (1 << 32) if identity >= 1 << 31 else identity, interval_ms, prefixes)
