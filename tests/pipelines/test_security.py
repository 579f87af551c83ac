"""TLS and SASL from Spark: Kafka's own setting names under `kafka.`, for reads, writes and pipelines' topics."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from ottla.connect.clients import consumer_settings, librdkafka_settings, producer_settings
from ottla.pipelines.build import RunSettings
from ottla.pipelines.pipeline import Pipeline
from ottla.pipelines.ports import topic
from ottla.pipelines.run import PipelineRun
from ottla.tables.query import topic_table
from ottla.testing import Broker
from tests.security.secured import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, Certificates, address, four_listeners, jaas

pytestmark = pytest.mark.timeout(600)

STORE_PASSWORD = "store-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    properties = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "num.partitions": "2",
    }
    given = four_listeners(certificates)
    given["listeners"] += ",MUTUAL://127.0.0.1:0"
    given["listener.security.protocol.map"] += ",MUTUAL:SSL"
    given["listener.name.mutual.ssl.client.auth"] = "required"
    with Broker(properties={**given, **properties, "auto.create.topics.enable": "true"}) as broker:
        admin = AdminClient({"bootstrap.servers": address(broker, "PLAINTEXT")})
        information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion("alice", information, PASSWORD.encode())
        admin.alter_user_scram_credentials([upsertion])["alice"].result(20)
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


def written_and_read(spark, settings, name):
    rows = spark.sql("select cast(id as string) as key, concat('v', id) as value from range(50)")
    rows.write.format("ottla").options(**kafka(settings), topic=name).mode("append").save()
    back = spark.read.format("ottla").options(
        **kafka(settings), subscribe=name, **{"kafka.isolation.level": "read_committed"}
    )
    assert {bytes(row.value) for row in back.load().select("value").collect()} == {b"v%d" % n for n in range(50)}


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_reads_and_writes(spark, secured, protocol):
    written_and_read(spark, client(secured, protocol), f"rows-{protocol.lower().replace('_', '-')}")


def test_scram_over_tls(spark, secured):
    login = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas(SCRAM_MODULE, username="alice", password=PASSWORD),
    }
    written_and_read(spark, client(secured, "SASL_SSL", **login), "rows-scram")


def stores(certificates, kind):
    """What a client of Java is given for a listener that asks for a certificate."""
    own, trust = certificates.issue("spark"), certificates.authority_file
    if kind == "PEM":
        return {
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust),
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(own),
        }  # fmt: skip
    pem = own.read_bytes()
    chain, key = x509.load_pem_x509_certificates(pem), serialization.load_pem_private_key(pem, None)
    packed = pkcs12.serialize_key_and_certificates(
        b"spark", key, chain[0], chain[1:], serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    )
    first = own.with_suffix(".p12")
    first.write_bytes(packed)
    folder, common = own.parent, ("-storetype", kind, "-storepass", STORE_PASSWORD, "-noprompt")
    key_store, trust_store = folder / f"key.{kind.lower()}", folder / f"trust.{kind.lower()}"
    keytool("-importcert", "-alias", "ca", "-file", str(trust), "-keystore", str(trust_store), *common)
    keytool(
        "-importkeystore", "-srckeystore", str(first), "-srcstoretype", "PKCS12", "-srcstorepass", STORE_PASSWORD,
        "-destkeystore", str(key_store), "-deststoretype", kind, "-deststorepass", STORE_PASSWORD, "-noprompt",
    )  # fmt: skip
    return {
        "ssl.truststore.type": kind, "ssl.truststore.location": str(trust_store), "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.type": kind, "ssl.keystore.location": str(key_store), "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }  # fmt: skip


def keytool(*words):
    program = shutil.which("keytool")
    if program is None:
        pytest.skip("keytool is not installed")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
def test_client_certificates(spark, secured, kind):
    broker, certificates = secured
    settings = {
        "bootstrap.servers": address(broker, "MUTUAL"),
        "security.protocol": "SSL",
        **stores(certificates, kind),
    }
    written_and_read(spark, settings, f"rows-mutual-{kind.lower()}")


def test_without_a_certificate_it_is_refused(spark, secured):
    settings = client(secured, "SSL")
    settings["bootstrap.servers"] = address(secured[0], "MUTUAL")
    with pytest.raises(Exception, match=r"SSL handshake failed: TLSV13_ALERT_CERTIFICATE_REQUIRED"):
        spark.read.format("ottla").options(**kafka(settings), subscribe="rows-mutual-pem").load().count()


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
    settings = client(secured, protocol, **more)
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


@pytest.mark.parametrize("name", sorted(
    {"max.request.size": "9000000", "fetch.max.wait.ms": "500", "send.buffer.bytes": "131072", "metrics.num.samples": "2",
     "partitioner.class": "RoundRobinPartitioner", "compression.zstd.level": "3", "ssl.protocol": "TLSv1.3",
     "sasl.login.refresh.window.factor": "0.8", "partition.assignment.strategy": "RangeAssignor",
     "socket.connection.setup.timeout.max.ms": "30000", "buffer.memory": "33554432", "max.block.ms": "60000"}.items()
), ids=lambda pair: pair[0])  # fmt: skip
def test_a_setting_of_javas_clients_is_no_error(name):
    client = {"bootstrap.servers": "127.0.0.1:1", "client.id": "x", **dict([name])}
    made = producer_settings(client)
    Producer(made | {"log_level": 0})
    Consumer(consumer_settings(client, "g") | {"log_level": 0})
    if name[0] == "max.request.size":
        assert made["message.max.bytes"] == "9000000"
