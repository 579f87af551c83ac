"""A properties file with names that Kafka does not know: it starts on both servers, and both show the names alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.client.settings import client_settings
from tests.interop.ottla_server import OTTLA, OttlaServer, write_config
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka

FOREIGN = {
    "confluent.license.topic.replication.factor": "1",
    "confluent.metadata.server.listeners": "http://0.0.0.0:8090",
    "confluent.support.metrics.enable": "false",
    "cruise.control.metrics.reporter.bootstrap.servers": "localhost:9092",
    "zookeeper.connect": "localhost:2181",
    "inter.broker.protocol.version": "3.9",
    "log.message.format.version": "3.0",
    "num.partition": "7",
    "share.group.of.a.later.version": "x",
    "listener.name.PLAINTEXT.max.connections": "5",
}
ODD = {
    "log.retention.hours ": "  168  ",
    "log.segment.bytes": "\\\n    1073741824",
    "! a comment": "",
    "config.providers": "file,env",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "message.max.bytes": "${file:FOLDER/limits.properties:largest}",
}


def _properties(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "limits.properties").write_text("largest=1234567\n")
    return {name: value.replace("FOLDER", str(folder)) for name, value in (FOREIGN | ODD).items()}


def _rows(server: ApacheKafka) -> dict[str, tuple[object, ...]]:
    with Cluster(client_settings(server.bootstrap_servers)) as cluster:
        rows = describe_configs(cluster, ConfigResourceType.BROKER, ["1"])["1"]
    names = {*FOREIGN, "message.max.bytes", "log.segment.bytes", "log.retention.hours"}
    return {
        row.name: (row.value, row.read_only, row.config_source, row.is_sensitive, row.config_type)
        for row in rows
        if row.name in names
    }


def test_unknown_names_are_warnings(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path, properties=_properties(tmp_path / "values"))
    server.start()
    try:
        log = server.log_file.read_text()
        for name in FOREIGN:
            assert f"{name}: " in log
        assert "num.partition: Kafka 4.3 has no such setting; did you mean num.partitions?" in log
        doctor = subprocess.run(
            [*OTTLA, "doctor", "-b", server.bootstrap_servers], capture_output=True, text=True, timeout=60, check=False
        ).stdout
        assert doctor.count("unknown-property: broker 1: ") == len(FOREIGN)
        assert "did you mean num.partitions?" in doctor
        assert _rows(server)["message.max.bytes"][0] == "1234567"
    finally:
        server.stop()


def test_strict_refuses_all_of_them_by_name(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path, properties=_properties(tmp_path / "values"))
    config = str(write_config(server))
    for words in (["storage", "format", "-t", CLUSTER_ID, "-c", config], ["server", "start", config]):
        done = subprocess.run([*OTTLA, *words, "--strict"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == len(FOREIGN)
        assert "did you mean num.partitions?" in done.stderr
    assert not Path(server.properties["log.dirs"]).exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "io.confluent.kafka.security.authorizer.ConfluentServerAuthorizer"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("alter.config.policy.class.name", "com.example.Policy"),
        ("principal.builder.class", "com.example.Builder"),
        ("client.quota.callback.class", "com.example.Quotas"),
        ("ssl.engine.factory.class", "com.example.Engine"),
        ("config.providers.v.class", "com.example.Vault"),
    ],
)
def test_a_class_that_may_stop_something_is_refused(tmp_path: Path, name: str, value: str) -> None:
    more = {"config.providers": "v"} if name.startswith("config.providers") else {}
    server = OttlaServer(tmp_path, properties={name: value, **more})
    config = str(write_config(server))
    done = subprocess.run([*OTTLA, "server", "start", config], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"{name}={value}: Java classes cannot be loaded here" in done.stderr


@pytest.mark.interop
@pytest.mark.usefixtures("requires_apache_kafka")
def test_both_start_and_show_the_same(tmp_path: Path) -> None:
    shown = []
    for kind in (ApacheKafka, OttlaServer):
        server = kind(tmp_path / kind.__name__, properties=_properties(tmp_path / "values"))
        server.start()
        try:
            shown.append(_rows(server))
        finally:
            server.kill()
    assert shown[0] == shown[1]
    assert len(shown[0]) == len(FOREIGN) + 3
