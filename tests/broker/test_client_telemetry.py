"""Client telemetry (KIP-714): librdkafka pushes to a real node; the rules of subscribing and pushing one by one."""

from __future__ import annotations

import struct
import time
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from ottla.broker.telemetry.otlp import Point, points
from ottla.broker.telemetry.subscriptions import Client, ClientTelemetry, subscription_for
from ottla.client.cluster import Cluster
from ottla.client.configs import SET, ConfigResourceType, alter_configs
from ottla.client.settings import client_settings
from ottla.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID, Uuid
from ottla.protocol.compression import GZIP, compress
from ottla.testing import Broker
from tests.support.kafka_tools import ProducerPerformance, start_tool
from tests.support.ports import free_port

CLIENT = Client("app-1", "librdkafka", "2.6.0", "10.0.0.1", 5000)


class FakeClock:
    now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def time_ms(self) -> int:
        return int(self.now_ms)


def field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2, len(body)]) + body


def message(name: str, value: int, *, delta: bool) -> bytes:
    label = field(7, field(1, b"node") + field(2, field(1, b"7")))
    point = field(1, b"\x31" + struct.pack("<q", value) + label)
    total = field(7, point + (b"\x10\x01" if delta else b"\x10\x02"))
    return field(1, field(2, field(2, field(1, name.encode()) + total)))


def telemetry() -> tuple[ClientTelemetry, FakeClock]:
    clock = FakeClock()
    ids = iter(range(1, 100))
    return ClientTelemetry(clock, lambda: Uuid(next(ids).to_bytes(16, "big")), 1000), clock  # type: ignore[arg-type]


def image(**subscriptions: dict[str, str]) -> MetadataImage:
    found = MetadataImage()
    for name, overrides in subscriptions.items():
        found.configs[RESOURCE_CLIENT_METRICS, name] = overrides
    return found


def refusal(call) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_numbers_are_read_from_otlp() -> None:
    assert points(message("a.b", 5, delta=True)) == [Point("a.b", (("node", "7"),), 5.0, True)]
    for broken in (b"\xff", b"\x0a\xff\x01", b"\x0b"):
        with pytest.raises(ValueError):
            points(broken)


def test_subscriptions_that_match_are_joined() -> None:
    configs = image(
        all_of_them={"metrics": "org.apache.kafka.producer.", "interval.ms": "60000"},
        mine={"metrics": "org.apache.kafka.consumer.", "interval.ms": "30000", "match": "client_id=app-.*"},
        others={"metrics": "*", "match": "client_id=other"},
    ).configs
    wanted = subscription_for(configs, Uuid(b"\1" * 16), CLIENT)
    assert wanted.metrics == ("org.apache.kafka.consumer.", "org.apache.kafka.producer.")
    assert wanted.interval_ms == 30_000
    nobody = subscription_for({}, Uuid(b"\1" * 16), CLIENT)
    assert (nobody.metrics, nobody.interval_ms) == ((), 300_000)
    assert nobody.id != wanted.id


def test_pushes_add_up_and_are_told_until_the_client_goes() -> None:
    receiver, clock = telemetry()
    instance, wanted = receiver.subscribe(image(a={"metrics": "*", "interval.ms": "1000"}), ZERO_UUID, CLIENT)
    for _ in range(2):
        receiver.push(instance, wanted.id, terminating=False, compression=0, data=message("n", 5, delta=True))
        clock.now_ms += 1_000
    assert [(name, value) for _, name, _, value in receiver.samples()] == [("n", 10.0)]
    packed = compress(GZIP, message("n", 7, delta=False))
    receiver.push(instance, wanted.id, terminating=False, compression=GZIP, data=packed)
    assert [value for *_, value in receiver.samples()] == [7.0]
    clock.now_ms += 10_000
    assert list(receiver.samples()) == []


def test_what_is_refused() -> None:
    receiver, _clock = telemetry()
    instance, wanted = receiver.subscribe(image(a={"metrics": "*", "interval.ms": "1000"}), ZERO_UUID, CLIENT)

    def push(instance_id=instance, subscription_id=wanted.id, *, terminating=False, compression=0, data=b""):
        receiver.push(instance_id, subscription_id, terminating=terminating, compression=compression, data=data)

    assert refusal(lambda: push(ZERO_UUID)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: push(subscription_id=wanted.id + 1)) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert refusal(lambda: push(Uuid(b"\7" * 16))) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert refusal(lambda: push(compression=9)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(lambda: push(data=b"x" * 1001)) is ErrorCode.TELEMETRY_TOO_LARGE
    assert refusal(lambda: push(data=b"\xff\xff")) is ErrorCode.INVALID_RECORD
    push(data=message("n", 1, delta=True))
    assert refusal(push) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    push(terminating=True)
    assert refusal(push) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@pytest.mark.timeout(120)
def test_librdkafka_pushes_to_a_node() -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}) as broker:
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            changes = [("metrics", SET, "*"), ("interval.ms", SET, "100")]
            alter_configs(cluster, ConfigResourceType.CLIENT_METRICS, "everything", changes)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "pusher"})
        deadline = time.monotonic() + 60
        told = ""
        while "ottla_client_metric{" not in told and time.monotonic() < deadline:
            producer.produce("t", b"x")
            producer.flush(5)
            with urlopen(f"http://{address}/metrics", timeout=20) as answer:
                told = answer.read().decode()
            time.sleep(0.2)
        lines = [line for line in told.splitlines() if line.startswith("ottla_client_metric{")]
        assert any('client_id="pusher"' in line and "producer" in line for line in lines), told[-2000:]


@pytest.mark.interop
@pytest.mark.timeout(120)
def test_apache_kafkas_producer_pushes_to_a_node(requires_apache_kafka: None) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Broker(properties={"ottla.http.listener": address}) as broker:
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            changes = [("metrics", SET, "org.apache.kafka.producer."), ("interval.ms", SET, "100")]
            alter_configs(cluster, ConfigResourceType.CLIENT_METRICS, "producers", changes)
        producing = start_tool(
            ProducerPerformance, "--topic", "t", "--num-records", "100000", "--record-size", "10", "--throughput", "50",
            "--bootstrap-server", broker.bootstrap_servers, "--command-property", "client.id=java-pusher",
        )  # fmt: skip
        try:
            deadline, lines = time.monotonic() + 90, []
            while not lines:
                assert time.monotonic() < deadline, "nothing was pushed"
                assert producing.poll() is None, producing.communicate()
                with urlopen(f"http://{address}/metrics", timeout=20) as answer:
                    lines = [line for line in answer.read().decode().splitlines() if 'client_id="java-pusher"' in line]
                time.sleep(0.1)
        finally:
            producing.kill()
            producing.communicate(timeout=30)
        assert any("org.apache.kafka.producer." in line for line in lines), lines[:5]
        assert not any("org.apache.kafka.consumer." in line for line in lines), "only what was asked for"


def test_without_a_subscription_clients_are_not_asked_and_write_no_line_about_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Broker(properties={"ottla.http.listener": f"127.0.0.1:{free_port()}"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        del producer
        assert "Telemetry" not in capfd.readouterr().err
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            assert not {71, 72} & set(cluster.any(time.monotonic() + 20).versions)
            alter_configs(cluster, ConfigResourceType.CLIENT_METRICS, "everything", [("metrics", SET, "*")])
        with Cluster(client_settings(broker.bootstrap_servers)) as cluster:
            assert set(cluster.any(time.monotonic() + 20).versions) >= {71, 72}


def test_without_a_listener_nobody_is_asked_to_push() -> None:
    with Broker() as broker, Cluster(client_settings(broker.bootstrap_servers)) as cluster:
        versions = cluster.any(time.monotonic() + 20).versions
    assert not {71, 72} & set(versions)
    assert 3 in versions
