"""Erasure and deletion on three nodes: one replica is down, a transaction is open, the cleaner runs, leaders change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.verbs.topic import topic as topic_command
from ottla.env.config.load import load
from ottla.runtime.disk import DiskStorage
from ottla.security.encryption import EncryptedStorage
from ottla.security.keystore import MasterKeys
from tests.robustness.cluster_process import ClusterProcess, wait_for
from tests.security.test_encryption import master_line

TOPIC, DOOMED = "people", "doomed"
NODES = (1, 2, 3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    (tmp_path / "master").write_text(master_line())
    settings = {
        "ottla.encryption.master.key.file": str(tmp_path / "master"),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    with ClusterProcess(tmp_path, properties=settings) as running:
        yield running


def readable(cluster: ClusterProcess, node_id: int, topic: str, tmp_path: Path) -> bytes:
    """All that one node's files of the topic yield with the keys that this node has now."""
    properties = cluster.nodes[node_id].properties
    lines = (line.partition("=") for line in properties.read_text().splitlines() if "=" in line and line[0] != "#")
    config = load({name.strip(): value.strip() for name, _, value in lines})
    found = b""
    for directory in config.data_dirs:
        disk = EncryptedStorage(DiskStorage(), [directory], MasterKeys(config))
        for path in sorted(Path(directory).glob(f"{topic}-*/*.log*")):
            with contextlib.suppress(OSError):  # no key for it, or the cleaner was faster
                found += disk.read_bytes(str(path))
    return found


def leader_of(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, 10).topics[topic].partitions[0].leader)


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    def tried() -> bool:
        try:
            return condition()
        except KafkaException:
            return False

    wait_for(tried, seconds, what)


def values(bootstrap: str, last: bytes) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed", "check.crcs": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    deadline = time.monotonic() + 30
    while last not in [value for _, value in found.values()] and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                found[message.offset()] = message.key(), message.value()
    consumer.close()
    return [found[offset] for offset in sorted(found)]


@pytest.mark.timeout(240)
def test_nobody_brings_it_back(cluster: ClusterProcess, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    compacting = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    wanted = [NewTopic(TOPIC, 1, 3, config=compacting), NewTopic(DOOMED, 1, 3)]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(60):
        key = (b"ada", b"bob", b"eve-%d" % number)[number % 3]
        plain.produce(TOPIC, b"SECRET-OF-" + key + b"-%d" % number, key)
        plain.produce(DOOMED, b"SECRET-OF-doomed-%d" % number)
    assert plain.flush(60) == 0
    transactional = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce(TOPIC, b"SECRET-OF-bob-open", b"bob")
    transactional.flush(60)

    offline = next(node for node in NODES if node != leader_of(admin, TOPIC))
    cluster.kill(offline)
    assert b"SECRET-OF-bob" in readable(cluster, offline, TOPIC, tmp_path), "the look can fail"
    assert b"SECRET-OF-doomed" in readable(cluster, offline, DOOMED, tmp_path)
    others = [node for node in NODES if node != offline]
    command = ["forget", TOPIC, "-b", f"127.0.0.1:{cluster.nodes[others[0]].port}", "--yes", "--key", "bob"]
    done = CliRunner().invoke(topic_command, command)
    assert done.exit_code == 0, done.output
    # A client that took the dead node for the controller asks nobody else for a long time.
    admin = AdminClient({"bootstrap.servers": ",".join(f"127.0.0.1:{cluster.nodes[node].port}" for node in others)})
    admin.delete_topics([DOOMED])[DOOMED].result(30)
    for node in others:
        until(lambda n=node: b"SECRET-OF-bob" not in readable(cluster, n, TOPIC, tmp_path), f"node {node} erases")
        until(lambda n=node: b"SECRET-OF-doomed" not in readable(cluster, n, DOOMED, tmp_path), f"node {node} deletes")

    leader = leader_of(admin, TOPIC)  # and the leader goes, as the third comes back with all that was erased
    cluster.start(offline)
    cluster.kill(leader)
    until(lambda: leader_of(admin, TOPIC) not in (-1, leader), "another leader")
    until(lambda: b"SECRET-OF-bob" not in readable(cluster, offline, TOPIC, tmp_path), "the one that was down erases")
    until(
        lambda: b"SECRET-OF-doomed" not in readable(cluster, offline, DOOMED, tmp_path), "it deletes what was deleted"
    )
    cluster.start(leader)
    cluster.wait_up()
    transactional.commit_transaction(60)
    plain.produce(TOPIC, b"SECRET-OF-bob-later", b"bob")
    assert plain.flush(60) == 0
    found = values(cluster.bootstrap_servers, b"SECRET-OF-bob-later")
    bobs = {value for key, value in found if key == b"bob"}
    assert b"SECRET-OF-bob-later" in bobs
    assert bobs <= {None, b"SECRET-OF-bob-later"}, found
    for number in range(2, 60, 3):
        assert (b"eve-%d" % number, b"SECRET-OF-eve-%d-%d" % (number, number)) in found
    for node in NODES:
        assert b"SECRET-OF-bob-open" not in readable(cluster, node, TOPIC, tmp_path)
        assert "Traceback" not in cluster.log(node)
