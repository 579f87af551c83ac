"""Two nodes that trust nobody: TLS and a login on every listener, the controller's too, and ACLs over everything."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.robustness.server_process import COMMAND, environment, free_ports, ottla, write_properties
from tests.security.secured import PLAIN_MODULE, SCRAM_MODULE, Certificates, jaas

CLUSTER_ID = "b2t0bGEtc2VjdXJpdHktMg"
NODE_PASSWORD, ADMIN_PASSWORD = "between-nodes-only", "administrators-only"
NODE = {"username": "node", "password": NODE_PASSWORD}
USERS = {"user_node": NODE_PASSWORD, "user_admin": ADMIN_PASSWORD, "user_eve": "eve"}


def properties(
    directory: Path, certificates: Certificates, node_id: int, ports: list[int], controller_port: int
) -> dict[str, str]:
    port = ports[node_id - 1]
    listeners = f"SASL_SSL://127.0.0.1:{port}"
    controller = f",CONTROLLER://127.0.0.1:{controller_port}" if node_id == 1 else ""
    return {
        "process.roles": "broker,controller" if node_id == 1 else "broker",
        "node.id": str(node_id),
        "listeners": listeners + controller,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
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
    first, second, controller = free_ports(3)
    password_file = tmp_path / "password"
    password_file.write_text(NODE_PASSWORD + "\n")
    processes = []
    try:
        for node_id in (1, 2):
            directory = tmp_path / f"node-{node_id}"
            directory.mkdir()
            config = write_properties(
                directory / "server.properties",
                properties(directory, certificates, node_id, [first, second], controller),
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
            "bootstrap.servers": f"127.0.0.1:{first},127.0.0.1:{second}",
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
        logs = [(tmp_path / f"node-{node_id}" / "log").read_text() for node_id in (1, 2)]
        for text in logs:
            assert "Traceback" not in text, text[-4000:]
            for secret in (NODE_PASSWORD, ADMIN_PASSWORD):
                assert secret not in text


@pytest.mark.timeout(120)
def test_replication_and_forwarding_work_and_strangers_do_not(cluster: dict[str, Any]) -> None:
    admin = AdminClient(cluster)
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=30).brokers) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    admin.create_topics([NewTopic("secret", 2, 2)])["secret"].result(30)
    producer = Producer({**cluster, "acks": "all"})
    failures: list[Any] = []
    for number in range(20):
        producer.produce("secret", str(number), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(40) == 0
    assert failures == []
    in_sync = {len(p.isrs) for p in admin.list_topics("secret", timeout=20).topics["secret"].partitions.values()}
    assert in_sync == {2}
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
