"""The settings of `ottla.read` and `ottla.write`: both calls read the names of Kafka's clients and those of librdkafka."""

from __future__ import annotations

import time

import pytest

import ottla
from ottla.client.librdkafka import java_settings
from ottla.client.settings import client_settings, jaas_options
from ottla.frames.connecting import producer_settings, wire_settings
from ottla.model.user_error import UserError
from ottla.tables.topics import TableError
from ottla.testing import Broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SOON_S = 60
"""Far below librdkafka's own patience of five minutes, and enough for a loaded machine."""


@pytest.fixture(scope="module")
def broker():
    with Broker(auth={"alice": "secret"}) as broker:
        yield broker


def kafka_names(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
    }


def librdkafka_names(password: str) -> dict[str, object]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
        "linger.ms": 5,
        "enable.idempotence": True,
    }


@pytest.mark.parametrize("names", [kafka_names, librdkafka_names])
def test_both_calls_read_both_spellings(broker, names):
    topic = broker.topic()
    servers = broker.bootstrap_servers
    assert ottla.write(topic, [{"id": 1}], bootstrap_servers=servers, settings=names("secret")) == 1
    assert ottla.read(topic, bootstrap_servers=servers, settings=names("secret")).to_arrow()["id"].to_pylist() == [1]


def test_the_settings_of_an_application_work_unchanged(broker, monkeypatch):
    """`bootstrap.servers` of the settings wins over the variable; settings of consumers and of Java have no effect."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    topic = broker.topic()
    settings = {
        **broker.client_settings(),
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "max.poll.records": 5,
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    }
    assert ottla.write(topic, [{"id": 1}], settings=settings) == 1
    assert ottla.read(topic, settings=settings).to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("names", [kafka_names, librdkafka_names])
def test_a_wrong_password_fails_at_once(broker, names):
    topic = broker.topic()
    wrong: dict = {"settings": {"bootstrap.servers": broker.bootstrap_servers, **names("wrong")}}
    begun = time.monotonic()
    for call in (lambda: ottla.write(topic, [{"id": 1}], **wrong), lambda: ottla.read(topic, **wrong).to_arrow()):
        with pytest.raises(TableError, match="refused the login: Authentication failed"):
            call()
    assert time.monotonic() - begun < SOON_S
    assert broker.records(topic) == []


def test_brokers_that_do_not_answer(monkeypatch):
    monkeypatch.setattr("ottla.frames.connecting._LOGIN_S", 0.2)
    with pytest.raises(TableError, match=r"no broker of 127\.0\.0\.1:9 answers"):
        ottla.write("orders", [{"id": 1}], bootstrap_servers="127.0.0.1:9")


def test_wrong_settings_are_named(broker):
    settings = broker.client_settings()
    with pytest.raises(
        UserError, match=r'the settings of ottla\.write are refused: No such configuration property: "lingr.ms"'
    ):
        ottla.write("orders", [{"id": 1}], settings={**settings, "lingr.ms": 5})
    with pytest.raises(UserError, match="the setting error_cb is of the type builtin_function_or_method"):
        ottla.write("orders", [{"id": 1}], settings={**settings, "error_cb": print})
    with pytest.raises(UserError, match="'avro' is not a schema"):
        ottla.read("orders", schema="avro")


def test_librdkafkas_names_in_kafkas_words():
    translated = java_settings(
        {
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": 'al"ice\\',
            "sasl.password": "a b=c;",
            "ssl.ca.pem": "CA",
            "ssl.certificate.pem": "CHAIN",
            "ssl.key.pem": "KEY",
        }
    )
    assert jaas_options(translated["sasl.jaas.config"]) == {"username": 'al"ice\\', "password": "a b=c;"}
    assert client_settings("a:1", {**translated, "security.protocol": "ssl"}).ssl == {
        "truststore.certificates": "CA",
        "keystore.certificate.chain": "CHAIN",
        "keystore.key": "KEY",
    }
    both = java_settings({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "OAUTHBEARER", "sasl.jaas.config": "own"})
    assert (both["sasl.mechanism"], both["sasl.jaas.config"]) == ("PLAIN", "own")


def test_where_the_brokers_are(monkeypatch):
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "variable:1")
    setting = {"bootstrap.servers": "setting:1"}
    for argument, settings, host in (
        ("argument:1", setting, "argument"),
        (None, setting, "setting"),
        (None, {"metadata.broker.list": "list:1"}, "list"),
        (None, None, "variable"),
    ):
        assert wire_settings(argument, settings).bootstrap == ((host, 1),)
        assert producer_settings(argument, settings)["bootstrap.servers"] == f"{host}:1"
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    assert wire_settings(None, None).bootstrap == (("localhost", 9092),)
