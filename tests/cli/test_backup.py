"""A backup of a cluster, restored into an empty cluster and compared record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.cli.backup import store as stores
from ottla.cli.backup.creating import create_backup
from ottla.cli.backup.manifest import SavedPartition, SavedSegment
from ottla.cli.backup.pieces import pieces
from ottla.cli.backup.reading import save_partition
from ottla.cli.backup.store import BackupStore
from ottla.cli.commands import ottla
from ottla.client.cluster import Cluster
from ottla.client.groups import commit_offsets, committed_offsets
from ottla.client.offsets import delete_records, end_offsets
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic
from ottla.protocol.generated.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.records_build import SimpleRecord, assemble_batch, build_batch, encode_record
from ottla.testing import Broker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPICS = {
    "orders": {"retention.ms": "-1"},
    "moved": {},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "empty": {},
    "_schemas": {"cleanup.policy": "compact"},
}
LONG_AGO_MS = 1_000_000_000_000
STARTS_AT = 250_000


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(ottla, list(words))
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(client_settings(broker.bootstrap_servers))


def fill(broker: Broker) -> None:
    with cluster_of(broker) as cluster:
        for name, configs in TOPICS.items():
            create_topic(cluster, name, partitions=2 if name == "orders" else 1, replication_factor=1, configs=configs)
        server = broker.bootstrap_servers
        for codec in ("none", "gzip", "zstd", "lz4"):
            producer = Producer({"bootstrap.servers": server, "compression.type": codec, "linger.ms": 20})
            for number in range(50):
                headers: list[tuple[str, Any]] = [("n", b"1"), ("n", b"2"), ("null", None)]
                key, when = f"{codec}{number}", LONG_AGO_MS + number
                producer.produce("orders", f"v{number}".encode(), key, number % 2, timestamp=when, headers=headers)
                producer.produce("appended", f"v{number}", key)
                producer.produce("_schemas", f"v{number}", key)
            producer.flush(60)
        for name, commits in (("a", True), ("b", False), ("c", True)):
            producer = Producer({"bootstrap.servers": server, "transactional.id": name})
            producer.init_transactions(60)
            producer.begin_transaction()
            for number in range(5):
                producer.produce("orders", f"{name}{number}", "t", number % 2, timestamp=LONG_AGO_MS)
            producer.flush(60)
            producer.commit_transaction(60) if commits else producer.abort_transaction(60)
        producer = Producer({"bootstrap.servers": server, "compression.type": "zstd", "batch.num.messages": 100_000})
        for number in range(STARTS_AT + 3):
            producer.produce("moved", b"m", timestamp=LONG_AGO_MS)
            if number % 50_000 == 0:
                producer.flush(60)
        producer.flush(60)
        delete_records(cluster, {("moved", 0): STARTS_AT, ("orders", 1): 7})
        commit_offsets(cluster, "billing", {("orders", 0): 30, ("orders", 1): 90, ("moved", 0): STARTS_AT + 1})
    call("acl", "allow", "User:alice", "topic", "orders", "read", "-b", server)


def records(broker: Broker, isolation: str) -> list[tuple[Any, ...]]:
    reader = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "isolation.level": isolation,
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    places = [TopicPartition(name, index, 0) for name in TOPICS for index in range(2 if name == "orders" else 1)]
    for place in places:
        place.offset = reader.get_watermark_offsets(place, timeout=60)[0]
    reader.assign(places)
    rows, left = [], len(places)
    while left:
        message = reader.poll(60)
        assert message is not None
        if message.error() is not None:
            left -= 1
            continue
        key, headers = message.key(), message.headers()
        place = message.topic(), message.partition(), message.offset()
        rows.append((*place, key, message.value(), headers, message.timestamp()[1]))
    reader.close()
    return sorted(rows, key=lambda row: row[:3])


def ends(broker: Broker) -> tuple[Any, ...]:
    places = [(name, index) for name in TOPICS for index in range(2 if name == "orders" else 1)]
    with cluster_of(broker) as cluster:
        return end_offsets(cluster, places, earliest=True), end_offsets(cluster, places)


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker(properties=AUTHORIZER) as broker:
        fill(broker)
        yield broker


def test_an_empty_cluster_gets_the_same_records_at_the_same_offsets(source: Broker, tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    call("backup", "create", folder, "-b", source.bootstrap_servers)
    assert "is complete" in call("backup", "verify", folder)
    with Broker(properties=AUTHORIZER) as target:
        server = ["-b", target.bootstrap_servers]
        call("backup", "restore", folder, *server)
        assert records(target, "read_committed") == records(source, "read_committed")
        assert ends(target) == ends(source)
        committed = {row[:3] for row in records(source, "read_committed")}
        uncommitted = {row[:3] for row in records(target, "read_uncommitted")}
        assert uncommitted == committed  # holes have no records for any reader
        with cluster_of(target) as cluster:
            offsets = committed_offsets(cluster, "billing")
        assert offsets == {("orders", 0): 30, ("orders", 1): 90, ("moved", 0): STARTS_AT + 1}
        described = {name: json.loads(call("topic", "describe", name, "-o", "json", *server)) for name in TOPICS}
        assert {name: row["configs"] for name, row in described.items()} == TOPICS
        rules = json.loads(call("acl", "list", "-o", "json", *server))
        assert [(row["principal"], row["name"], row["operation"]) for row in rules] == [
            ("User:alice", "orders", "read")
        ]
        assert "has _schemas, appended, empty, moved, orders already" in call(
            "backup", "restore", folder, *server, code=1
        )


def test_only_new_records_are_stored_again(source: Broker, tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        first = create_backup(cluster, store)
        kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.log")}
        producer = Producer({"bootstrap.servers": source.bootstrap_servers})
        producer.produce("orders", b"later", partition=0)
        producer.flush(60)
        second = create_backup(cluster, store)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    added = {segment.file for segment in second.segments()} - {segment.file for segment in first.segments()}
    assert len(added) == 1
    assert [row["complete"] for row in json.loads(call("backup", "list", str(tmp_path), "-o", "json"))] == [True, True]


def test_an_interrupted_backup_is_incomplete_and_continues(
    source: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    write, count = stores.BackupStore.write, [0]

    def counted(self: BackupStore, name: str, content: bytes) -> None:
        count[0] -= 1
        if count[0] == 0:
            raise Killed
        write(self, name, content)

    monkeypatch.setattr(stores.BackupStore, "write", counted)
    store, names = BackupStore(str(tmp_path)), set()
    with cluster_of(source) as cluster:
        for after in range(2, 7):
            count[0] = after
            with pytest.raises(Killed):
                create_backup(cluster, store)
            manifests = store.manifests()
            names |= {manifest.name for manifest in manifests}
            assert len(manifests) <= 1
            if manifests:
                assert "incomplete" in call("backup", "verify", str(tmp_path), code=1)
        count[0] = 0
        assert create_backup(cluster, store).name in names
    assert len(names) == 1
    assert "is complete" in call("backup", "verify", str(tmp_path))


@pytest.mark.parametrize("damage", ["byte", "cut", "gone"])
def test_a_damaged_file_is_found(source: Broker, tmp_path: Path, damage: str) -> None:
    with cluster_of(source) as cluster:
        create_backup(cluster, BackupStore(str(tmp_path)))
    path = max(tmp_path.rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert path.name in call("backup", "verify", str(tmp_path), code=1)
    assert path.name in call("backup", "restore", str(tmp_path), "-b", source.bootstrap_servers, code=1)


def test_too_many_holes_are_refused_before_anything_is_written(source: Broker, tmp_path: Path) -> None:
    call("backup", "create", str(tmp_path), "-b", source.bootstrap_servers)
    with Broker() as target:
        refusal = call("backup", "restore", str(tmp_path), "--max-holes", "1", "-b", target.bootstrap_servers, code=1)
        assert "offsets without a record" in refusal
        assert json.loads(call("topic", "list", "-o", "json", "-b", target.bootstrap_servers)) == []


def test_a_compacted_topic_is_read_again_beside_the_earlier_file(source: Broker, tmp_path: Path) -> None:
    """A tombstone may be gone from the log: the records of an earlier backup would bring its key back."""
    with cluster_of(source) as cluster:
        store = BackupStore(str(tmp_path))
        create_backup(cluster, store)
        producer = Producer({"bootstrap.servers": source.bootstrap_servers})
        producer.produce("_schemas", None, "none0")
        producer.flush(60)
        second = create_backup(cluster, store)
    partition = next(topic for topic in second.topics if topic.name == "_schemas").partitions[0]
    assert [(segment.first, segment.end) for segment in partition.segments] == [(0, partition.end)]
    for manifest in store.manifests():
        assert "is complete" in call("backup", "verify", str(tmp_path), manifest.name)


def test_a_topic_that_the_brokers_compact_by_default_is_read_again(tmp_path: Path) -> None:
    with Broker(properties={"log.cleanup.policy": "compact"}) as broker, cluster_of(broker) as cluster:
        create_topic(cluster, "states", partitions=1, replication_factor=1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for value in (b"v", None):
            producer.produce("states", value, "k")
            producer.flush(60)
            latest = create_backup(cluster, BackupStore(str(tmp_path)))
    assert [(segment.first, segment.end) for segment in latest.segments()] == [(0, 2)]


def test_an_empty_answer_of_a_new_leader_does_not_end_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader has a lower last stable offset for a moment, and no records above that offset."""
    batch = bytes(build_batch([SimpleRecord(0, b"k", b"v")] * 3, base_offset=5))
    answers = [PartitionData(0, 0, 5, 5, 0), PartitionData(0, 0, 8, 8, 0, records=batch)]

    def node_attempt(*_: object) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[answers.pop(0)])])

    monkeypatch.setattr("ottla.client.topics.leaders_of", lambda *_: {("t", 0): 1})
    partition = SavedPartition(index=0, start=5, end=8)
    cluster = Cluster(client_settings("127.0.0.1:1"))
    monkeypatch.setattr(cluster, "node_attempt", node_attempt)
    save_partition(cluster, BackupStore(str(tmp_path)), "data", "t", partition, lambda: None)
    assert [(segment.first, segment.end) for segment in partition.segments] == [(5, 8)]


def test_what_compaction_left_of_a_batch(tmp_path: Path) -> None:
    payload = bytearray()
    for delta in (0, 1, 4):
        encode_record(payload, delta, delta, b"k%d" % delta, b"v", (("h", b"x"),))
    batch = assemble_batch(
        payload, 3, base_offset=10, last_offset_delta=6, base_timestamp=100, max_timestamp=104, producer_id=7,
        producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    store = BackupStore(str(tmp_path))
    store.write("data/x.log", bytes(batch))
    import hashlib

    segment = SavedSegment(
        file="data/x.log", first=0, end=17, size=len(batch), sha256=hashlib.sha256(batch).hexdigest(), epoch=0
    )
    found = list(pieces(store, SavedPartition(index=0, start=0, end=17, segments=[segment])))
    assert [(piece.first, piece.record_count) for piece in found] == [(10, 2), (14, 1)]
    later = list(pieces(store, SavedPartition(index=0, start=11, end=17, segments=[segment])))
    assert [(piece.first, piece.record_count) for piece in later] == [(11, 1), (14, 1)]
