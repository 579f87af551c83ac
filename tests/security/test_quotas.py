"""Quotas: who is counted with whom, how long one is left alone; measured beside Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.protocol.generated.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records_build import SimpleRecord, build_batch
from ottla.security.quotas import PRODUCE, QuotaTable, RateSensor, TokenBucket
from tests.interop.ottla_server import OttlaServer
from tests.security.session import Closed, Session
from tests.support.apache_kafka import ApacheKafka
from tests.support.caught_up import catch_up

QUOTAS = {
    (("client-id", "c"), ("user", "u")): 1.0,
    (("client-id", None), ("user", "u")): 2.0,
    (("user", "u"),): 3.0,
    (("client-id", "c"), ("user", None)): 4.0,
    (("client-id", None), ("user", None)): 5.0,
    (("user", None),): 6.0,
    (("client-id", "c"),): 7.0,
    (("client-id", None),): 8.0,
}


def test_the_most_specific_quota_counts() -> None:
    left: dict[Any, float] = dict(QUOTAS)
    for expected in range(1, 9):
        found = QuotaTable({entity: {PRODUCE: bound} for entity, bound in left.items()}).find(PRODUCE, "u", "c")
        assert found is not None
        assert found.bound == expected
        del left[next(entity for entity, bound in left.items() if bound == expected)]
    table = QuotaTable({(("user", None),): {PRODUCE: 1.0}, (("client-id", "x"),): {PRODUCE: 2.0}})
    for user, client, sensor in (("a", "x", ("a", "")), ("b", "y", ("b", ""))):
        found = table.find(PRODUCE, user, client)
        assert found is not None
        assert found.sensor[1:] == sensor
    assert table.find("consumer_byte_rate", "a", "x") is None


def test_a_rate_over_windows() -> None:
    sensor = RateSensor(11, 1000)
    sensor.record(1000, 5000)
    assert sensor.throttle_ms(100, 5000) == 0
    sensor.record(1000, 5000)
    assert sensor.throttle_ms(100, 5000) == pytest.approx(10_000)
    assert sensor.throttle_ms(100, 5000 + 11_000) == 0


def test_a_bucket_goes_below_zero_once() -> None:
    bucket = TokenBucket(11, 1000)
    bucket.refill(1.0, 0)
    assert bucket.tokens == 11
    bucket.tokens -= 15
    assert bucket.throttle_ms(1.0) == 4000
    bucket.refill(1.0, 5000)
    assert bucket.throttle_ms(1.0) == 0


@pytest.fixture(scope="module", params=["ottla", "apache"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    if request.param == "apache":
        request.getfixturevalue("requires_apache_kafka")
    kind = OttlaServer if request.param == "ottla" else ApacheKafka
    running = kind(tmp_path_factory.mktemp(request.param))
    try:
        yield running.start()
    finally:
        running.kill()


def alter(session: Session, entity: dict[str, str | None], **quotas: float) -> int:
    parts = [EntityData(kind.replace("_", "-"), name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest([EntryData(parts, [OpData(key, value) for key, value in quotas.items()])])
    code: int = session.ask(request, 1).entries[0].error_code
    return code


def until(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def described(session: Session) -> dict[Any, Any]:
    components = [ComponentData("client-id", 2, None)]
    entries = session.ask(DescribeClientQuotasRequest(components, False), 1).entries
    return {e.entity[0].entity_name: {v.key: v.value for v in e.values} for e in entries}


def produce(session: Session, client_id: str, size: int) -> Any:
    batch = bytes(build_batch([SimpleRecord(1_700_000_000_000, None, b"x" * size)]))
    data = [TopicProduceData("quotas", partition_data=[PartitionProduceData(0, batch)])]
    return session.ask(ProduceRequest(None, 1, 5000, data), 9, client_id)


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_throttle_times_and_muting(server: ApacheKafka) -> None:
    """The same expectations for both servers."""
    with Session(server.port) as admin:
        topics = CreateTopicsRequest([CreatableTopic("quotas", 1, 1)], 10_000)
        assert admin.ask(topics, 5).topics[0].error_code in (0, 36)
        assert alter(admin, {"client_id": "slow"}, producer_byte_rate=10_000.0) == 0
        assert alter(admin, {"client_id": "reader"}, consumer_byte_rate=10_000.0) == 0
        assert alter(admin, {"client_id": "x", "user": "y"}, request_percentage=50.0) == 0
        assert alter(admin, {"client_id": "x"}, no_such_quota=1.0) == 42
        assert alter(admin, {"client_id": "x"}, producer_byte_rate=-1.0) == 42
        assert alter(admin, {"ip": "not an address"}, connection_creation_rate=1.0) == 42
        assert alter(admin, {"colour": "red"}, producer_byte_rate=1.0) == 42
        catch_up(server.bootstrap_servers)  # a quota is told before it is in force
        assert described(admin)["reader"] == {"consumer_byte_rate": 10_000.0}
    with Session(server.port) as quick, Session(server.port) as slow:
        assert produce(quick, "quick", 60_000).throttle_time_ms == 0
        started = time.monotonic()
        assert produce(slow, "slow", 60_000).throttle_time_ms == 0  # 6 kB/s over the ten seconds that are assumed
        throttled = produce(slow, "slow", 54_000).throttle_time_ms
        assert over(114_000, time.monotonic() - started) <= throttled <= 1450, throttled
        started = time.monotonic()
        slow.ask(MetadataRequest([]), 9, "slow")  # the answer has come, but nothing more is read for so long
        assert time.monotonic() - started >= throttled / 1000 * 0.8
    with Session(server.port) as reader:
        started = time.monotonic()
        first, second = fetch(reader), fetch(reader)
        most = time.monotonic() - started
        assert first.throttle_time_ms == 0
        size = sum(len(p.records or b"") for t in first.responses for p in t.partitions)
        assert size in (60_072, 70_000)  # whole batches, or up to the byte
        assert over(2 * size, most) <= second.throttle_time_ms <= (2 * size - 100_000) / 10 + 50
        assert second.responses == []


def over(size: int, elapsed: float) -> float:
    """The least milliseconds for so many bytes at 10 kB/s: Kafka's window is 10 s and the begun part of an eleventh."""
    return size / 10 - 10_000 - min(elapsed, 1) * 1000


def fetch(session: Session) -> Any:
    topics = [FetchTopic("quotas", partitions=[FetchPartition(0, partition_max_bytes=70_000)])]
    return session.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics), 11, "reader")


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_changes_of_the_cluster_are_rationed(server: ApacheKafka) -> None:
    with Session(server.port) as session:
        assert alter(session, {"client_id": "mutator"}, controller_mutation_rate=1.0) == 0
        catch_up(server.bootstrap_servers)
        assert "mutator" in described(session)
        codes, waits = [], []
        started = time.monotonic()
        for number in range(3):
            request = CreateTopicsRequest([CreatableTopic(f"many-{number}", 10, 1)], 10_000)
            response = session.ask(request, 7, "mutator")
            codes.append(response.topics[0].error_code)
            waits.append(response.throttle_time_ms)
        assert codes == [0, 0, 89]  # 11 tokens, -9 after the second
        assert waits[0] == 0
        refilled = (time.monotonic() - started) * 1000
        assert 9_000 - refilled <= waits[2] <= 9_000


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_time_is_rationed(server: ApacheKafka) -> None:
    """request_percentage: who uses more than its share of the time is throttled, on both servers."""
    with Session(server.port) as admin:
        assert alter(admin, {"client_id": "busy"}, request_percentage=0.01) == 0
        until(lambda: described(admin).get("busy") == {"request_percentage": 0.01})

    def throttled() -> bool:
        with Session(server.port) as busy:
            return any(busy.ask(MetadataRequest(None), 9, "busy").throttle_time_ms > 0 for _ in range(20))

    until(throttled, 60)
    with Session(server.port) as other:
        assert max(other.ask(MetadataRequest(None), 9, "idle").throttle_time_ms for _ in range(20)) == 0


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_connections_of_an_address_are_rationed(server: ApacheKafka) -> None:
    with Session(server.port) as admin:
        assert alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=2.0) == 0
        refused = tried = 0
        while refused < 10:
            assert tried < 200, refused  # two in a second are let in
            tried += 1
            try:
                with Session(server.port, timeout=0.4) as one:
                    one.ask(MetadataRequest([]), 9)
            except (Closed, TimeoutError):
                refused += 1
        request = AlterClientQuotasRequest(
            [EntryData([EntityData("ip", "127.0.0.1")], [OpData("connection_creation_rate", 0.0, True)])]
        )
        assert admin.ask(request, 1).entries[0].error_code == 0
