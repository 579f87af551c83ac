"""A scenario as values, and the bounds of everything in a scenario. Nothing here reads files or runs a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_BROKERS = 7
MAX_CONTROLLERS = 5
MAX_TOPICS = 10
MAX_PARTITIONS = 60
"""Of all topics together."""
MAX_CLIENTS = 20
"""Producers, and as many consumers."""
MAX_RECORDS = 100_000
"""Of all producers together."""
MAX_RECORD_BYTES = 10_000
MAX_FAULTS = 500
MAX_SEED = 1 << 53
HOUR_MS = 3_600_000.0
FIRST_CONTROLLER = 101
"""Brokers have the ids from 1 on, controllers those from 101 on."""
READY_MS = 1_000.0
"""The earliest moment at which clients begin by themselves: the cluster starts and its topics are created before."""
ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    seed: int = 1
    duration_ms: float = 30_000.0
    heal: bool = True
    settle_ms: float = 120_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    brokers: int = 3
    controllers: int = 1
    racks: tuple[str, ...] = ()
    delay_ms: float = 0.5
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    partitions: int = 1
    replicas: int = 3
    assignment: tuple[tuple[int, ...], ...] = ()
    """The brokers of each partition, the preferred leader first; empty if the controller chooses them."""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    name: str
    topic: str
    acks: int = ACKS_ALL
    idempotence: bool = True
    retries: int = 2_147_483_647
    in_flight: int = 5
    rate: int = 100
    count: int = 1_000
    keys: int = 0
    record_bytes: int = 100
    start_ms: float = READY_MS
    request_timeout_ms: float = 30_000.0
    delivery_timeout_ms: float = 120_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan:
    name: str
    topic: str
    group: str = ""
    members: int = 1
    isolation: str = "read_uncommitted"
    reset: str = "earliest"
    commit_ms: float = 5_000.0
    start_ms: float = READY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    kind: str
    at_ms: float
    target: str = ""
    peer: str = ""
    name: str = ""
    for_ms: float | None = None
    """The fault ends by itself after this time."""
    delay_ms: float = 0.0
    by_ms: float = 0.0
    one_way: bool = False
    clients: bool = True
    """Clients lose their connection to an isolated broker, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    run: RunPlan
    cluster: ClusterPlan
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    consumers: tuple[ConsumerPlan, ...] = ()
    faults: tuple[FaultPlan, ...] = ()

    def topic(self, name: str) -> TopicPlan:
        return next(topic for topic in self.topics if topic.name == name)
