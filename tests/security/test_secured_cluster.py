"""Three nodes that trust nobody: TLS and a login on every listener, the controllers' too, ACLs, encryption at rest."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.robustness.server_process import COMMAND, environment, ottla, write_properties
from tests.security.secured import PLAIN_MODULE, SCRAM_MODULE, Certificates, jaas
from tests.security.test_encryption import master_line, storage
from tests.support.live_copy import copy_live
from tests.support.ports import free_ports

CLUSTER_ID = "b2t0bGEtc2VjdXJpdHktMg"
NODE_PASSWORD, ADMIN_PASSWORD = "between-nodes-only", "administrators-only"
NODE = {"username": "node", "password": NODE_PASSWORD}
USERS = {"user_node": NODE_PASSWORD, "user_admin": ADMIN_PASSWORD, "user_eve": "eve"}


NODES = (1, 2, 3)


def properties(
    directory: Path, certificates: Certificates, node_id: int, ports: list[int], controller_ports: list[int]
) -> dict[str, str]:
    port = ports[node_id - 1]
    listeners = f"SASL_SSL://127.0.0.1:{port}"
    controller = f",CONTROLLER://127.0.0.1:{controller_ports[node_id - 1]}"
    (directory / "master").write_text(master_line(seed=b"%d" % node_id))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": listeners + controller,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{controller_ports[id_ - 1]}" for id_ in NODES),
        "ottla.encryption.master.key.file": str(directory / "master"),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "SASL_SSL",
        "log.dirs": str(directory / "data"),
        "offsets.topic.num.partitions": "1",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(PLAIN_MODULE, **NODE, **USERS),
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas(SCRAM_MODULE, **NODE),
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": jaas(PLAIN_MODULE, **NODE, **USERS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.issue(f"node-{node_id}")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority_file),
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, Any]]:
    certificates = Certificates(tmp_path / "certificates")
    found = free_ports(6)
    ports, controller_ports = found[:3], found[3:]
    password_file = tmp_path / "password"
    password_file.write_text(NODE_PASSWORD + "\n")
    processes = []
    try:
        for node_id in NODES:
            directory = tmp_path / f"node-{node_id}"
            directory.mkdir()
            config = write_properties(
                directory / "server.properties",
                properties(directory, certificates, node_id, ports, controller_ports),
            )
            user = f"SCRAM-SHA-256=[name=node,passwordfile={password_file}]"
            done = ottla("storage", "format", "-t", CLUSTER_ID, "-c", config, "--add-scram", user)
            assert done.returncode == 0, done.stderr
            with (directory / "log").open("ab") as output:
                command = [*COMMAND, "server", "start", str(config)]
                processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment())
                )
        yield {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.authority_file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": ADMIN_PASSWORD,
        }
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        logs = [(tmp_path / f"node-{node_id}" / "log").read_text() for node_id in NODES]
        for text in logs:
            assert "Traceback" not in text, text[-4000:]
            for secret in (NODE_PASSWORD, ADMIN_PASSWORD):
                assert secret not in text


@pytest.mark.timeout(180)
def test_replication_and_forwarding_work_and_strangers_do_not(cluster: dict[str, Any], tmp_path: Path) -> None:
    admin = AdminClient(cluster)
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=30).brokers) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    admin.create_topics([NewTopic("secret", 2, 3)])["secret"].result(30)
    producer = Producer({**cluster, "acks": "all"})
    failures: list[Any] = []
    for number in range(20):
        key = "forgotten" if number % 2 else "kept"
        producer.produce(
            "secret", f"{key}-{number}", key, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(40) == 0
    assert failures == []
    deadline = time.monotonic() + 60
    while in_sync(admin, "secret") != {3}:  # as the broker that answers has heard by now
        assert time.monotonic() < deadline, in_sync(admin, "secret")
        time.sleep(0.2)
    eve = AdminClient({**cluster, "sasl.username": "eve", "sasl.password": "eve"})
    with pytest.raises(KafkaException) as refused:
        eve.create_topics([NewTopic("hers", 1, 1)])["hers"].result(30)
    assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    assert "secret" not in eve.list_topics(timeout=20).topics
    consumer = Consumer({**cluster, "sasl.username": "eve", "sasl.password": "eve", "group.id": "g"})
    consumer.subscribe(["secret"])
    deadline = time.monotonic() + 20
    while True:
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            assert message.error().name() in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
            break
        assert time.monotonic() < deadline
    consumer.close()
    every_replica_forgets(cluster, tmp_path)


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    """How many replicas each of its partitions has that keep up."""
    return {len(partition.isrs) for partition in admin.list_topics(topic, timeout=20).topics[topic].partitions.values()}


def every_replica_forgets(cluster: dict[str, Any], tmp_path: Path) -> None:
    assert all(values(tmp_path / f"node-{node_id}", node_id) == {b"kept", b"forgotten"} for node_id in NODES)
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={cluster['ssl.ca.location']}\n"
        f"sasl.jaas.config={jaas(PLAIN_MODULE, username='admin', password=ADMIN_PASSWORD)}\n"
    )
    done = ottla(
        "topic", "forget", "secret", "--key", "forgotten", "--yes", "-b", cluster["bootstrap.servers"],
        "--command-config", client, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    deadline = time.monotonic() + 60
    while any(values(tmp_path / f"node-{node_id}", node_id) != {b"kept"} for node_id in NODES):
        assert time.monotonic() < deadline, [values(tmp_path / f"node-{node_id}", node_id) for node_id in NODES]
        time.sleep(0.5)


def values(directory: Path, node_id: int) -> set[bytes]:
    """Which values the node's own files yield with its own keys, by their first word."""
    look = directory / "look"
    copy_live(directory / "data", look)
    try:
        (look / "master").write_text(master_line(seed=b"%d" % node_id))
        disk, found = storage(look), set()
        for path in look.glob("secret-*/*.log*"):
            with contextlib.suppress(OSError):  # no key for it
                text = disk.read_bytes(str(path))
                found |= {word for word in (b"kept", b"forgotten") if word + b"-" in text}
        return found
    finally:
        shutil.rmtree(look)
