"""What one member of a share group can ask for: partitions of its session, and bytes that are read for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.broker.share import fetching, sessions
from ottla.broker.share.fetching import ShareFetch
from ottla.broker.share.sessions import SessionKey, ShareSessions
from ottla.coordinator.share.in_flight import InFlight, InFlightLimits
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated.share_fetch_request import ShareFetchRequest

TOPIC = Uuid(b"\1" * 16)


def test_sessions_have_a_limit_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FEW_PARTITIONS", 2)
    monkeypatch.setattr(sessions, "MAX_SESSION_PARTITIONS", 5)
    monkeypatch.setattr(sessions, "MAX_CACHED_PARTITIONS", 6)
    all_sessions = ShareSessions(lambda: 10)
    places = [(TOPIC, index) for index in range(6)]
    first = SessionKey("group", "a")
    all_sessions.begin(first, None, places[:4])
    assert all_sessions.size(first) == 4
    for size in (6, 3):  # too many for one; too many for all
        with pytest.raises(KafkaError) as refused:
            all_sessions.begin(SessionKey("group", "b"), None, places[:size])
        assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    all_sessions.begin(SessionKey("group", "b"), None, places[:2])
    assert all_sessions.has_room(2, 0)
    assert not all_sessions.has_room(6, 0)


class Slice:
    """Of a log: how much there is, and how often it was read."""

    def __init__(self, log: Log) -> None:
        self.length = log.size
        self._log = log

    def read(self) -> bytes:
        self._log.reads += 1
        return b""


class Log:
    """A partition and its share-partition in one."""

    leader_epoch = 0
    error = None
    limits = InFlightLimits(5, 100)

    def __init__(self, size: int) -> None:
        self.size = size
        self.looks = self.reads = self.asked = 0
        self.in_flight = InFlight(0)
        self.partition = self
        self.callback: Any = None

    def require_leader(self, _epoch: int) -> None:
        pass

    def read(self, _offset: int, max_bytes: int, **_options: object) -> Slice:
        self.looks += 1
        self.asked = max_bytes
        return Slice(self)

    def watch(self, _key: object, callback: Any) -> None:
        self.callback = callback

    def unwatch(self, _key: object) -> None:
        self.callback = None

    def lock_until_ms(self) -> float:
        return 1000.0


class Node:
    """As much of a broker as a share fetch needs."""

    def __init__(self, logs: list[Log]) -> None:
        self._logs = logs
        self.shares = self.timers = self.config = self.image = self
        self.configs: dict[Any, dict[str, str]] = {}
        self.fetch_max_bytes = 1 << 30
        self.soon: list[Any] = []

    def open(self, key: Any) -> Log:
        return self._logs[key.partition]

    def call_later(self, _delay_ms: float, _callback: Any) -> Node:
        return self

    def cancel(self) -> None:
        pass

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def test_a_share_fetch_that_waits_reads_nothing_and_looks_at_what_moved() -> None:
    logs = [Log(1000) for _ in range(10)]
    node = Node(logs)
    request = ShareFetchRequest(
        "group", "member", 1, max_wait_ms=1 << 30, min_bytes=20_000, max_bytes=1 << 30, max_records=10
    )
    done: list[object] = []
    fetch = ShareFetch(cast("Any", node), request, [(TOPIC, index) for index in range(10)], done.append)
    fetch.start()
    assert [log.looks for log in logs] == [1] * 10
    assert logs[0].asked == fetching.MAX_BYTES // 10  # whatever the member asks for
    logs[3].size = 5000
    logs[3].callback()
    logs[3].callback()
    node.turn()
    assert [log.looks for log in logs] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert sum(log.reads for log in logs) == 0
    assert not done
    logs[4].size = 12_000
    logs[4].callback()
    node.turn()
    assert sum(log.reads for log in logs) > 0  # that is enough
