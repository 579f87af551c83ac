"""TLS and SASL from Spark: Kafka's own setting names under `kafka.`, for reads, writes and pipelines' topics."""

from __future__ import annotations

import pytest

from ottla.connect.clients import librdkafka_settings
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic
from ottla.pipelines.run import PipelineRun
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.security.secured import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, Certificates, address, four_listeners, jaas

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    properties = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "num.partitions": "2",
    }
    with Broker(
        properties={**four_listeners(certificates), **properties, "auto.create.topics.enable": "true"}
    ) as broker:
        yield broker, certificates


def client(secured, protocol, **more):
    broker, certificates = secured
    tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority_file)}
    login = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(PLAIN_MODULE, username="alice", password=PASSWORD)}
    return {
        "bootstrap.servers": address(broker, protocol), "security.protocol": protocol,
        **(tls if "SSL" in protocol else {}), **(login if "SASL" in protocol else {}), **more,
    }  # fmt: skip


def kafka(settings):
    return {f"kafka.{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_reads_and_writes(spark, secured, protocol):
    name = f"rows-{protocol.lower().replace('_', '-')}"
    settings = client(secured, protocol)
    rows = spark.sql("select cast(id as string) as key, concat('v', id) as value from range(50)")
    rows.write.format("ottla").options(**kafka(settings), topic=name).mode("append").save()
    back = spark.read.format("ottla").options(
        **kafka(settings), subscribe=name, **{"kafka.isolation.level": "read_committed"}
    )
    assert {bytes(row.value) for row in back.load().select("value").collect()} == {b"v%d" % n for n in range(50)}


def test_a_pipeline_with_a_login(spark, secured, tmp_path):
    settings = client(secured, "SASL_SSL")
    rows = spark.sql("select '1' as key, 'a' as value")
    rows.write.format("ottla").options(**kafka(settings), topic="secure-in").mode("append").save()
    copy = Pipeline("copy")
    copy.step(reads={"rows": topic("secure-in", value="text")}, writes=topic("secure-out", value="text"))(
        lambda rows: rows.select("value")
    )
    servers = settings.pop("bootstrap.servers")
    run = PipelineRun(spark, copy, RunSettings(bootstrap_servers=servers, checkpoints=str(tmp_path), client=settings))
    run.once()
    found = topic_table({"bootstrap.servers": servers, **settings}, "secure-out").to_pylist()
    assert [row["value"] for row in found] == [b"a"]


@pytest.mark.parametrize(
    ("protocol", "more", "words"),
    [
        ("SASL_SSL", {"sasl.jaas.config": jaas(PLAIN_MODULE, username="alice", password="wrong")}, "uthentication failed"),
        ("SSL", {"ssl.truststore.location": "/no/such/ca.pem"}, "Failed to load SSL keystore or truststore"),
        ("SASL_SSL", {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas(SCRAM_MODULE, username="x", password="y")}, "uthentication failed"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_clear_error(spark, secured, protocol, more, words):
    settings = client(secured, protocol, **more, **{"default.api.timeout.ms": "3000"})
    with pytest.raises(Exception, match=words):
        spark.read.format("ottla").options(**kafka(settings), subscribe="rows-ssl").load().count()


def test_javas_names_become_librdkafkas():
    found = librdkafka_settings(
        {"ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem", "ssl.key.password": "p",
         "sasl.jaas.config": jaas(PLAIN_MODULE, username="u", password="p"), "ssl.endpoint.identification.algorithm": ""}
    )  # fmt: skip
    assert found["ssl.ca.location"] == "ca.pem"
    assert found["ssl.certificate.location"] == found["ssl.key.location"] == "me.pem"
    assert (found["sasl.username"], found["sasl.password"]) == ("u", "p")
    assert found["ssl.endpoint.identification.algorithm"] == "none"
