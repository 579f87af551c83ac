"""A follower's fetch moves a high watermark: the producer that is answered may append before the fetch is parked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.fetch.sessions import FetchContext, PartitionKey
from ottla.broker.handlers.replica_fetch import ParkedReplicaFetch, ReplicaFetch
from ottla.model.ids import Uuid
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, ReplicaState
from ottla.replication.partition import Partition

TOPIC = Uuid(7)


class StubPartition(Partition):
    """An empty partition; `on_position` runs when the leader hears of the follower's position."""

    __slots__ = ("_tail_waiters", "_waiters", "log", "on_position")
    isr = (1, 2)

    def __init__(self) -> None:
        self._waiters: Any = {}
        self._tail_waiters: Any = {}
        self.on_position = lambda: None
        offsets = SimpleNamespace(high_watermark=0, last_stable_offset=0, log_start_offset=0, log_end_offset=0)
        self.log: Any = SimpleNamespace(offsets=offsets)

    def require_leader(self, epoch: Any = -1) -> None:
        pass

    def follower_fetched(self, *_: Any) -> None:
        self.on_position()

    @property
    def high_watermark(self) -> Any:
        return self.log.offsets.high_watermark


@pytest.mark.parametrize("is_large", [True, False])
def test_what_was_appended_between_reading_and_parking_is_read(*, is_large: bool) -> None:
    first, second = StubPartition(), StubPartition()

    def appended() -> None:
        second.log.offsets.high_watermark = 1
        first.log.offsets.log_end_offset = 1
        first._wake_tail()

    second.on_position = appended
    soon: list[Any] = []
    timers = SimpleNamespace(call_soon=soon.append, call_later=lambda *_: SimpleNamespace(cancel=lambda: None))
    broker = SimpleNamespace(
        config=SimpleNamespace(fetch_max_bytes=1 << 20),
        clock=SimpleNamespace(monotonic_ms=lambda: 0.0),
        timers=timers,
        leader_throttle=None,
        authorizer=None,
        metrics=None,
        replicas=SimpleNamespace(by_id={TOPIC: {0: first, 1: second}}),
    )
    context: Any = SimpleNamespace(broker=broker, version=16, is_large=is_large)
    partitions = [(PartitionKey("", TOPIC, index), FetchPartition(index, 0, 0, -1, 0, 1000)) for index in (0, 1)]
    request = FetchRequest(max_bytes=1000, min_bytes=1, max_wait_ms=500, replica_state=ReplicaState(2, 5))
    follower: Any = SimpleNamespace(id=2, epoch=5)
    fetch = ReplicaFetch(context, request, FetchContext(partitions), follower)
    fetch.read()
    ParkedReplicaFetch(fetch, context, 500)
    assert soon, "the fetch waits for a record that is there"
