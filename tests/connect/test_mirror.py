"""Topics of another cluster, in and out by configuration: whole records, each exactly once, also through a crash."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from ottla.connect.exactly_once import ExactlyOnce
from ottla.connect.remote_topics import RemoteTopics
from ottla.connect.sender import Sender
from ottla.connect.sources.cluster import ClusterSource
from ottla.connect.topic_settings import TopicSettingsSync
from ottla.connect.worker import run_connector
from ottla.model.user_error import UserError
from ottla.tables.query import topic_table
from ottla.tables.topics import TopicMetadata, settings_from
from ottla.testing import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.committed import await_decided

pytestmark = pytest.mark.timeout(180)
PROPERTIES = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4", "num.partitions": "3",
              "auto.create.topics.enable": "true", "log.retention.ms": "-1"}  # fmt: skip


@pytest.fixture(scope="module")
def here():
    with Broker(properties=PROPERTIES) as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="module", params=["ottla", pytest.param("apache", marks=pytest.mark.interop)])
def there(request, tmp_path_factory):
    if request.param == "ottla":
        with Broker(properties=PROPERTIES) as broker:
            yield {"bootstrap.servers": broker.bootstrap_servers}
        return
    request.getfixturevalue("requires_apache_kafka")
    server = ApacheKafka(tmp_path_factory.mktemp("apache"), properties=PROPERTIES)
    try:
        yield {"bootstrap.servers": server.start().bootstrap_servers}
    finally:
        server.kill()


def write(client, topic, numbers, **settings):
    producer = Producer({**client, "log_level": 3, **settings})
    if settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for n in numbers:
        producer.produce(
            topic, f"v{n}".encode(), f"k{n}".encode(), timestamp=1_700_000_000_000 + n, headers=[("n", str(n))]
        )
    assert producer.flush(30) == 0
    return producer


def records(client, topic):
    await_decided(client["bootstrap.servers"], topic)
    rows = topic_table(client, topic, with_headers=True).to_pylist()
    return Counter(
        (row["key"], row["value"], row["partition"], row["timestamp"], json.dumps(row["headers"], default=str))
        for row in rows
    )


def test_a_cluster_as_source(here, there, request):
    name = f"west-{request.node.callspec.id}"
    orders = f"orders-{request.node.callspec.id}"
    config = {"name": name, "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
              "source.cluster.alias": name, "source.cluster.bootstrap.servers": there["bootstrap.servers"],
              "topics": "orders-.*, nothing", "topics.exclude": ".*secret", "batch.max.rows": "70"}  # fmt: skip
    write(there, orders, range(200))
    write(there, "orders-secret", range(5))
    write(there, "other", range(5))
    assert run_connector(config, here, once=True) == 200
    # What was aborted there does not come, and a source that finds only that ends all the same.
    write(there, orders, range(900, 950), **{"transactional.id": orders}).abort_transaction(30)
    assert run_connector(config, here, once=True) == 0
    write(there, orders, range(200, 230))
    assert run_connector(config, here, once=True) == 30
    assert records(here, f"{name}.{orders}") == records(there, orders)
    with TopicMetadata(settings_from(here)) as cluster:
        assert cluster.topics_like(f"{name}.*") == [f"{name}.{orders}"]
        assert len(cluster.partitions([f"{name}.{orders}"])) == 3


def test_a_source_that_dies_before_its_commit_repeats_nothing(here, there, request, monkeypatch):
    name, topic = f"dies-{request.node.callspec.id}", f"dies-in-{request.node.callspec.id}"
    config = {"name": name, "connector.class": "mirror-source", "source.cluster.alias": name, "topics": topic,
              "source.cluster.bootstrap.servers": there["bootstrap.servers"], "batch.max.rows": "40",
              "offset.headers.enabled": "true"}  # fmt: skip
    write(there, topic, range(100))
    flush, calls = Sender.flush, []

    def dying(self, timeout_s=300.0):
        flush(self, timeout_s)
        calls.append(1)
        if len(calls) in {1, 3}:
            raise UserError("killed")  # the records are there, their transaction is open

    monkeypatch.setattr(Sender, "flush", dying)
    for _ in range(2):
        with pytest.raises(UserError, match="killed"):
            run_connector(config, here, once=True)
    run_connector(config, here, once=True)
    rows = topic_table(here, f"{name}.{topic}", with_headers=True).to_pylist()
    assert Counter(row["value"] for row in rows) == Counter(f"v{n}".encode() for n in range(100))
    came = {(int(h["__mirror.partition"]), int(h["__mirror.offset"])) for h in map(_headers, rows)}
    assert len(came) == 100


def _headers(row):
    return {one["key"]: one["value"] for one in row["headers"]}


def test_a_cluster_as_sink(here, there, request, monkeypatch):
    kind = request.node.callspec.id
    topics = [f"out-{kind}-a", f"out-{kind}-b"]
    config = {"name": f"out-{kind}", "connector.class": "mirror-sink", "topics.regex": f"out-{kind}-.*", "flush.size": "20",
              "target.cluster.bootstrap.servers": there["bootstrap.servers"], "source.cluster.alias": "east"}  # fmt: skip
    for topic in topics:
        write(here, topic, range(100))
    written, crashes = ExactlyOnce.write, []

    def dying(self, records):
        done = written(self, records)
        crashes.append(1)
        if len(crashes) in {2, 5}:
            raise UserError("killed")  # committed there, not yet noted here
        return done

    monkeypatch.setattr(ExactlyOnce, "write", dying)
    for _ in range(2):
        with pytest.raises(UserError, match="killed"):
            run_connector(config, here, once=True)
    run_connector(config, here, once=True)
    assert run_connector(config, here, once=True) == 0
    for topic in topics:
        assert records(there, f"east.{topic}") == records(here, topic)


def settings_of(client, topic):
    """What is set on the topic itself."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({**client, "log_level": 3})
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def change_settings(client, topic, **changes):
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({**client, "log_level": 3})
    admin.incremental_alter_configs([resource])[resource].result(30)
    wanted = {name.replace("_", "."): value for name, value in changes.items()}
    shown(client, topic, lambda found: all(found.get(name) == value for name, value in wanted.items()))


def shown(client, topic, is_so):
    """What is set, once it is so: Kafka's controller answers before its broker has heard of the change."""
    deadline = time.monotonic() + 30
    while not is_so(found := settings_of(client, topic)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("direction", ["source", "sink"])
def test_a_mirrored_topic_has_the_settings_and_partitions_of_its_source(here, there, request, direction):
    kind = request.node.callspec.id
    topic, name = f"set-{kind}", f"settings-{kind}"
    near, far = (there, here) if direction == "source" else (here, there)
    made = {"cleanup.policy": "compact", "retention.ms": "123456", "min.insync.replicas": "1", "segment.bytes": "1048576",
            "message.timestamp.type": "CreateTime"}  # fmt: skip
    admin = AdminClient({**near, "log_level": 3})
    admin.create_topics([NewTopic(topic, 5, 1, config=made)])[topic].result(30)
    config = {"name": name, "connector.class": f"mirror-{direction}", "source.cluster.alias": "w", "topics": topic,
              f"{'source' if direction == 'source' else 'target'}.cluster.bootstrap.servers": there["bootstrap.servers"],
              "sync.topic.configs.interval.seconds": "1"}  # fmt: skip

    def mirrored(expected, **more):
        write(near, topic, range(10))
        run_connector(config | more, here, once=True)
        assert shown(far, f"w.{topic}", expected.__eq__) == expected

    copied = {"cleanup.policy": "compact", "retention.ms": "123456", "segment.bytes": "1048576"}
    mirrored(copied)  # not what MirrorMaker leaves out if nothing is said
    with TopicMetadata(settings_from(far)) as cluster:
        assert len(cluster.partitions([f"w.{topic}"])) == 5
    # What is changed, set or taken back there follows; what was set here and is excluded stays.
    change_settings(near, topic, retention_ms=None, segment_bytes="2097152", max_message_bytes="2000000")
    change_settings(far, f"w.{topic}", min_insync_replicas="1", flush_messages="7")
    expected = {
        "cleanup.policy": "compact",
        "segment.bytes": "2097152",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "1",
    }
    mirrored(expected)
    change_settings(near, topic, segment_bytes="3145728", max_message_bytes="3000000")
    mirrored(expected, **{"sync.topic.configs.enabled": "false"})
    more = {"max.message.bytes": "3000000"}
    mirrored(expected | more, **{"config.properties.exclude": "segment.bytes, min\\..*"})


def test_a_running_mirror_looks_again(here, there, request):
    topic = f"again-{request.node.callspec.id}"
    write(there, topic, range(5))
    config = {"name": topic, "source.cluster.alias": "w", "topics": topic, "sync.topic.configs.interval.seconds": "1",
              "source.cluster.bootstrap.servers": there["bootstrap.servers"]}  # fmt: skip
    source = ClusterSource(config)
    try:
        source.begin(here)
        assert len(source.poll(None)) == 5
        change_settings(there, topic, retention_ms="77777")
        deadline = time.monotonic() + 60
        while settings_of(here, f"w.{topic}").get("retention.ms") != "77777":
            assert time.monotonic() < deadline
            source.poll(None)
    finally:
        source.close()


def test_a_setting_that_is_refused_is_told_once_and_the_records_go_on(here, capfd):
    write(here, "near", range(5))
    write(here, "far", range(5))
    change_settings(here, "near", retention_ms="88888")
    settings = TopicSettingsSync({})
    settings.sync(here, here, {"near": "far", "gone": "far-gone"})
    assert settings_of(here, "far") == {"retention.ms": "88888"}
    assert capfd.readouterr().err == ""
    for _ in range(2):
        settings._alter(here, "far", {"retention.ms": "soon"})
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "far: its settings were not copied" in told


def test_names_and_circles():
    found = RemoteTopics({"source.cluster.alias": "a", "target.cluster.alias": "b", "topics.exclude": "x.*"})
    assert found.chosen(["t", "b.t", "xt", "c.t"]) == ["t", "c.t"]
    assert found.name("t") == "a.t"
    same = RemoteTopics({"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"})
    assert same.name("t") == "t"
    for config, words in [
        ({"topics": "("}, "regular expressions"),
        ({"replication.policy.class": "Mine"}, "is one of DefaultReplicationPolicy"),
    ]:
        with pytest.raises(UserError, match=words):
            RemoteTopics(config)
    for config, words in [
        ({"sync.topic.configs.enabled": "maybe"}, "true or false"),
        ({"config.properties.exclude": "("}, "config.properties.exclude is not a list of regular expressions"),
        ({"use.defaults.from": "me"}, "source or target"),
    ]:
        with pytest.raises(UserError, match=words):
            TopicSettingsSync(config)
    with pytest.raises(UserError, match=r"needs the setting source\.cluster\.bootstrap\.servers"):
        ClusterSource({"name": "x"})
