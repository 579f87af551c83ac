"""A restore that is killed before any of its requests: the cluster shows it, and `--continue` ends the restore."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.cli.backup import restoring
from ottla.cli.backup.creating import create_backup
from ottla.cli.backup.restore_mark import PREFIX
from ottla.cli.backup.restoring import RestoreLimits, restore_backup
from ottla.cli.backup.store import BackupStore
from ottla.cli.commands import ottla
from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs
from ottla.client.connection import BrokerConnection
from ottla.client.groups import commit_offsets, committed_offsets, delete_group
from ottla.client.offsets import delete_records, end_offsets
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic, delete_topic, list_topics
from ottla.model.config_source import ConfigSource
from ottla.testing import Broker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPICS = {"moved": {}, "orders": {"retention.ms": "-1", "cleanup.policy": "compact"}}
GROUP = "billing"


class Killed(BaseException):
    """As little as a kill -9 does this pass by `except`."""


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(client_settings(broker.bootstrap_servers))


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(ottla, list(words))
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two topics, of which one starts at offset 2 and one has a hole, a group and an ACL."""
    folder = str(tmp_path_factory.mktemp("backup"))
    with Broker(properties=AUTHORIZER) as source, cluster_of(source) as cluster:
        for name, configs in TOPICS.items():
            create_topic(cluster, name, partitions=1, replication_factor=1, configs=configs)
        for number in range(4):
            source.produce("moved", f"m{number}", key="k")
            source.produce("orders", f"o{number}", key=f"k{number}")
        delete_records(cluster, {("moved", 0): 2})
        producer = Producer({"bootstrap.servers": source.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"committed", b"t")
        producer.commit_transaction(60)
        commit_offsets(cluster, GROUP, {("moved", 0): 3, ("orders", 0): 2})
        call("acl", "allow", "User:alice", "topic", "orders", "read", "-b", source.bootstrap_servers)
        create_backup(cluster, BackupStore(folder))
    return folder


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(properties=AUTHORIZER) as running:
        yield running


def restore(broker: Broker, folder: str, *, resume: bool = False) -> None:
    store = BackupStore(folder)
    with cluster_of(broker) as cluster:
        restore_backup(cluster, store, store.manifest(None), RestoreLimits(), resume=resume)


def killed_restore(broker: Broker, folder: str, requests: int) -> bool:
    """Whether the restore was killed, after so many requests."""
    numbers, call_broker = itertools.count(), BrokerConnection.call

    def killing(self: BrokerConnection, *words: Any, **options: Any) -> Any:
        if next(numbers) == requests:
            raise Killed
        return call_broker(self, *words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BrokerConnection, "call", killing)
        try:
            restore(broker, folder)
        except Killed:
            return True
    return False


def content(broker: Broker) -> dict[str, Any]:
    """All that a restore brings back."""
    with cluster_of(broker) as cluster:
        names = [topic.name or "" for topic in list_topics(cluster) if not topic.is_internal]
        configs = describe_configs(cluster, ConfigResourceType.TOPIC, names) if names else {}
        places = [(name, 0) for name in names]
        return {
            "configs": {
                name: {row.name: row.value for row in rows if row.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
                for name, rows in configs.items()
            },
            "starts": end_offsets(cluster, places, earliest=True),
            "ends": end_offsets(cluster, places),
            "records": {name: [(row.offset, row.value) for row in broker.records(name)] for name in names},
            "offsets": committed_offsets(cluster, GROUP),
            "acls": json.loads(call("acl", "list", "-o", "json", "-b", broker.bootstrap_servers)),
        }


def empty(broker: Broker) -> None:
    with cluster_of(broker) as cluster:
        for name in TOPICS:
            delete_topic(cluster, name)
        delete_group(cluster, GROUP)


@pytest.mark.timeout(300)
def test_a_restore_that_is_killed_anywhere_is_marked_and_continues(backup: str, target: Broker) -> None:
    restore(target, backup)
    whole = content(target)
    assert (whole["starts"]["moved", 0], whole["ends"]["orders", 0], whole["offsets"]["orders", 0]) == (2, 6, 2)
    empty(target)
    kills = 0
    while killed_restore(target, backup, kills):
        kills += 1
        with cluster_of(target) as cluster:
            names = {topic.name or "" for topic in list_topics(cluster)}
        resume = any(name.startswith(PREFIX) for name in names)
        assert resume or not names & set(TOPICS), "a topic without the mark"
        restore(target, backup, resume=resume)
        assert content(target) == whole, f"killed before request {kills - 1}"
        empty(target)
    assert kills > 30


@pytest.fixture
def half_restored(backup: str, target: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Killed between the two topics."""
    alter = restoring.alter_configs

    def killing(*words: Any) -> None:
        alter(*words)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "alter_configs", killing)
        with pytest.raises(Killed):
            restore(target, backup)
    return target


def test_a_half_restored_cluster_is_named_everywhere(half_restored: Broker, backup: str, tmp_path: Path) -> None:
    where = ["-b", half_restored.bootstrap_servers]
    (name,) = [manifest.name for manifest in BackupStore(backup).manifests()]
    advice = f"`ottla backup restore WHERE {name} --continue`"
    assert advice in call("backup", "restore", backup, *where, code=1)
    assert advice in call("backup", "create", str(tmp_path / "other"), *where, code=1)
    assert advice in call("cluster", "status", *where, code=1)
    assert json.loads(call("cluster", "status", "-o", "json", *where, code=1))["restoring"] == [name]
    assert PREFIX + name in call("topic", "list", *where)
    assert "restored" in call("backup", "restore", backup, "--continue", *where)
    assert "restore" not in call("cluster", "status", *where)
    assert "omit --continue" in call("backup", "restore", backup, "--continue", *where, code=1)


def test_a_topic_of_others_is_not_deleted(half_restored: Broker, backup: str) -> None:
    """Such as the topic of a registry that somebody started in between."""
    with cluster_of(half_restored) as cluster:
        create_topic(cluster, "orders", partitions=1, replication_factor=1)
    half_restored.produce("orders", "of others")
    where = ["-b", half_restored.bootstrap_servers]
    assert "orders-0 ends at offset 1, and at 6 in the backup" in call(
        "backup", "restore", backup, "--continue", *where, code=1
    )
    assert [record.value for record in half_restored.records("orders")] == ["of others"]


def test_offsets_that_consumers_committed_since_stay(half_restored: Broker, backup: str) -> None:
    with cluster_of(half_restored) as cluster:
        commit_offsets(cluster, GROUP, {("moved", 0): 4})
        restore(half_restored, backup, resume=True)
        assert committed_offsets(cluster, GROUP) == {("moved", 0): 4, ("orders", 0): 2}
