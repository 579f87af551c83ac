"""Client quotas as Kafka measures them: a rate over sampled windows, a token bucket, and which quota counts for whom.

Nothing here waits: a sensor returns how long to throttle its client. Every call gets the time as an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.security.hosts import network_of, plain_address

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATION = "controller_mutation_rate"
CONNECTION = "connection_creation_rate"
_MAX_SENSORS = 10_000

Entity = tuple[tuple[str, str | None], ...]


class RateSensor:
    """Kafka's Rate: the sum of the last `window_num` samples of `window_ms` each, divided by the time that they cover.
    At least `window_num - 1` whole windows are assumed to have passed, so a burst at the beginning is spread over
    them.
    """

    __slots__ = ("_num", "_samples", "_window_ms")

    def __init__(self, window_num: int, window_ms: int) -> None:
        self._num = window_num
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: float) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0.0])
        self._samples[-1][1] += value

    def throttle_ms(self, bound: float, now_ms: float) -> float:
        """Milliseconds until the rate is within `bound` if no more values come."""
        window_ms = self._elapsed_ms(now_ms)
        rate = sum(sample[1] for sample in self._samples) / (window_ms / 1000)
        return (rate - bound) / bound * window_ms if rate > bound else 0.0

    def _elapsed_ms(self, now_ms: float) -> float:
        while self._samples and now_ms - self._samples[0][0] >= self._num * self._window_ms:
            self._samples.popleft()
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        full = int(elapsed // self._window_ms)
        if full < self._num - 1:
            elapsed += (self._num - 1 - full) * self._window_ms
        return max(elapsed, 1.0)


class TokenBucket:
    """Kafka's TokenBucket: a burst of `window_num` windows' worth, refilled at the rate; it may go below zero once."""

    __slots__ = ("_burst_s", "_last_ms", "tokens")

    def __init__(self, window_num: int, window_ms: int) -> None:
        self._burst_s = window_num * window_ms / 1000
        self._last_ms: float | None = None
        self.tokens = 0.0

    def refill(self, rate: float, now_ms: float) -> None:
        if self._last_ms is None:
            self.tokens = rate * self._burst_s
        else:
            self.tokens = min(self.tokens + rate * max(now_ms - self._last_ms, 0) / 1000, rate * self._burst_s)
        self._last_ms = now_ms

    def throttle_ms(self, rate: float) -> float:
        return -self.tokens / rate * 1000 if self.tokens < 0 else 0.0


class Quota(NamedTuple):
    bound: float
    sensor: tuple[str, str, str]
    """Kind, user, client id. A part that the quota does not name is empty, so that clients share the sensor."""


class QuotaTable:
    """The quotas of the metadata image, found by user and client id in Kafka's order."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        self._by_key: dict[str, dict[Entity, float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                self._by_key.setdefault(key, {})[_one_spelling(entity)] = value

    def has(self, *keys: str) -> bool:
        return any(key in self._by_key for key in keys)

    def find(self, key: str, user: str, client_id: str) -> Quota | None:
        quotas = self._by_key.get(key)
        if quotas is None:
            return None
        # Most specific first; sorted by type as in the image: "client-id" before "user".
        for entity, sensor in (
            ((("client-id", client_id), ("user", user)), (key, user, client_id)),
            ((("client-id", None), ("user", user)), (key, user, client_id)),
            ((("user", user),), (key, user, "")),
            ((("client-id", client_id), ("user", None)), (key, user, client_id)),
            ((("client-id", None), ("user", None)), (key, user, client_id)),
            ((("user", None),), (key, user, "")),
            ((("client-id", client_id),), (key, "", client_id)),
            ((("client-id", None),), (key, "", client_id)),
        ):
            bound = quotas.get(entity)
            if bound is not None:
                return Quota(bound, sensor)
        return None

    def of_address(self, host: str) -> float | None:
        quotas = self._by_key.get(CONNECTION, {})
        return quotas.get((("ip", plain_address(host)),), quotas.get((("ip", None),)))

    def counted_as(self, host: str) -> str:
        """Under which name the connections of an address count: the default quota is one of an IPv6 network."""
        plain = plain_address(host)
        return plain if (("ip", plain),) in self._by_key.get(CONNECTION, {}) else network_of(plain)


def _one_spelling(entity: Entity) -> Entity:
    """An address as `plain_address` writes it; Kafka resolves the only name that is accepted, localhost."""
    if len(entity) != 1 or entity[0][0] != "ip" or entity[0][1] is None:
        return entity
    return (("ip", "127.0.0.1" if entity[0][1] == "localhost" else plain_address(entity[0][1])),)


class Sensors:
    """The rates and buckets of all clients; the oldest half is dropped when there are too many."""

    def __init__(self, window_num: int, window_ms: int) -> None:
        self._shape = (window_num, window_ms)
        self._sensors: dict[tuple[Any, ...], Any] = {}

    def rate(self, key: tuple[Any, ...]) -> RateSensor:
        sensor: RateSensor = self._get(key, RateSensor)
        return sensor

    def bucket(self, key: tuple[Any, ...]) -> TokenBucket:
        token_bucket: TokenBucket = self._get(key, TokenBucket)
        return token_bucket

    def _get(self, key: tuple[Any, ...], kind: type[Any]) -> Any:
        sensor = self._sensors.get(key)
        if sensor is None:
            if len(self._sensors) >= _MAX_SENSORS:
                for old in list(self._sensors)[: _MAX_SENSORS // 2]:
                    del self._sensors[old]
            sensor = self._sensors[key] = kind(*self._shape)
        return sensor
