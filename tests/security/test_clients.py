"""The real Python clients through every protocol and mechanism, and what each is told when it is wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.testing import Broker
from tests.security.secured import PASSWORD, USERS, Certificates, address, four_listeners

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    with Broker(properties=four_listeners(certificates)) as running:
        admin = AdminClient({"bootstrap.servers": address(running, "PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])["alice"].result(10)
        for name in ("SSL", *MECHANISMS):
            admin.create_topics([NewTopic(f"by-{name}", 1)])[f"by-{name}"].result(10)
        yield running


def settings(broker: Broker, certificates: Certificates, protocol: str, mechanism: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": address(broker, protocol), "security.protocol": protocol}
    if "SSL" in protocol:
        found["ssl.ca.location"] = str(certificates.authority_file)
    if mechanism:
        found |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": USERS["alice"]}
    return found


def round_trip(config: dict[str, Any], topic: str, value: bytes) -> None:
    producer = Producer(config)
    failures: list[KafkaError] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert not failures
    consumer = Consumer({**config, "group.id": f"group-{topic}-{hash(value)}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        values = set()
        for _ in range(200):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.add(message.value())
                if message.value() == value:
                    return
        raise AssertionError(f"{value[:40]!r} was not read; {len(values)} others were")
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(broker: Broker, certificates: Certificates, protocol: str, mechanism: str) -> None:
    round_trip(settings(broker, certificates, protocol, mechanism), f"by-{mechanism}", protocol.encode())


def test_librdkafka_over_tls_with_large_records(broker: Broker, certificates: Certificates) -> None:
    """Larger than a TLS record, than the scratch buffer and than what leaves by sendfile elsewhere."""
    round_trip(settings(broker, certificates, "SSL"), "by-SSL", b"x" * 900_000)


def first_error(config: dict[str, Any], seconds: float = 15) -> KafkaError:
    """What librdkafka tells its user."""
    errors: list[KafkaError] = []
    client = Producer({**config, "error_cb": errors.append})
    for _ in range(int(seconds / 0.1)):
        client.poll(0.1)
        for error in errors:
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "alert" in error.str():
                return error
    raise AssertionError(f"no error; got {errors}")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(broker: Broker, certificates: Certificates, mechanism: str) -> None:
    config = settings(broker, certificates, "SASL_SSL", mechanism)
    error = first_error({**config, "sasl.password": "wrong"})
    assert error.code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in error.str()
    assert PASSWORD not in error.str()


def test_an_unknown_mechanism_is_refused_with_those_that_are_known(broker: Broker, certificates: Certificates) -> None:
    config = settings(broker, certificates, "SASL_SSL", "PLAIN")
    oauth = {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True}
    config = {name: value for name, value in config.items() if not name.startswith("sasl.")}
    error = first_error({**config, **oauth, "sasl.oauthbearer.config": "principal=alice"})
    assert "PLAIN" in error.str()


def test_an_untrusted_certificate_is_refused(broker: Broker, certificates: Certificates, tmp_path: Path) -> None:
    stranger = Certificates(tmp_path / "stranger")
    config = settings(broker, certificates, "SSL")
    mine = str(stranger.issue("mallory"))
    error = first_error({**config, "ssl.certificate.location": mine, "ssl.key.location": mine})
    assert "unknown ca" in error.str()


def test_a_client_that_does_not_trust_the_server_stays_away(broker: Broker, tmp_path: Path) -> None:
    stranger = Certificates(tmp_path / "stranger")
    config = settings(broker, stranger, "SSL")
    assert first_error(config).code() == KafkaError._SSL


def aiokafka_security(broker: Broker, certificates: Certificates, protocol: str, mechanism: str) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": address(broker, protocol), "security_protocol": protocol}
    if "SSL" in protocol:
        found["ssl_context"] = ssl.create_default_context(cafile=str(certificates.authority_file))
    if mechanism:
        found |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    return found


@pytest.mark.parametrize(("protocol", "mechanism"), [("SSL", ""), *(("SASL_SSL", name) for name in MECHANISMS)])
def test_aiokafka(broker: Broker, certificates: Certificates, protocol: str, mechanism: str) -> None:
    topic = f"by-{mechanism or protocol}"

    async def exchange() -> bytes:
        security = aiokafka_security(broker, certificates, protocol, mechanism)
        producer = AIOKafkaProducer(**security)
        await producer.start()
        try:
            sent = await producer.send_and_wait(topic, b"from aiokafka")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(**aiokafka_security(broker, certificates, protocol, mechanism))
        await consumer.start()
        try:
            partition = next(iter(await _partitions(consumer, topic)))
            consumer.assign([partition])
            consumer.seek(partition, sent.offset)
            message = await asyncio.wait_for(consumer.getone(), 20)
            return message.value
        finally:
            await consumer.stop()

    assert asyncio.run(exchange()) == b"from aiokafka"


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> set[Any]:
    from aiokafka import TopicPartition

    await consumer._client.force_metadata_update()
    return {TopicPartition(topic, 0)}
