"""Backups whose folder, manifest or cluster does something else than expected."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.backup.creating import create_backup
from ottla.cli.backup.manifest import BackupError, Manifest
from ottla.cli.backup.pieces import Piece
from ottla.cli.backup.restoring import problems_of
from ottla.cli.backup.store import BackupStore
from ottla.cli.backup.writing import PartitionWriter
from ottla.cli.commands import ottla
from ottla.client.cluster import Cluster
from ottla.client.connection import Answer
from ottla.client.offsets import end_offsets
from ottla.client.settings import client_settings
from ottla.client.topics import create_topic
from ottla.coordinator.transactions.completion import Completion
from ottla.model.errors import KafkaError
from ottla.protocol.generated.fetch_request import FetchRequest
from ottla.protocol.generated.fetch_response import FetchResponse
from ottla.protocol.primitives import Message
from ottla.protocol.records_build import SimpleRecord, build_batch
from ottla.testing import Broker

RECORDS = 20
LATE_S = 0.2


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker(properties={"log.cleanup.policy": "compact"}) as broker:
        with cluster_of(broker) as cluster:
            create_topic(cluster, "deletes", partitions=1, replication_factor=1, configs={"cleanup.policy": "delete"})
            create_topic(cluster, "compacts", partitions=1, replication_factor=1)
        for number in range(RECORDS):
            broker.produce("deletes", f"v{number}", key=f"k{number}")
            broker.produce("compacts", f"v{number}", key=f"k{number}")
        yield broker


def cluster_of(broker: Broker) -> Cluster:
    return Cluster(client_settings(broker.bootstrap_servers))


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(ottla, list(words))
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.output


def changed(folder: Path, change: Any) -> None:
    """The manifest of the newest backup, after `change` of its tree."""
    file = max((folder / "backups").glob("*.json"))
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


class NewLeader(Cluster):
    """Some answers are those of a leader that was just elected: it has the records, and a low high watermark."""

    late = 2

    def node_attempt(self, node_id: int, request: Message, answer: type[Answer], highest: int | None = None) -> Answer:
        answered: Any = super().node_attempt(node_id, request, answer, highest)
        if isinstance(request, FetchRequest) and isinstance(answered, FetchResponse) and self.late:
            self.late -= 1
            row = answered.responses[0].partitions[0]
            row.records, row.last_stable_offset, row.high_watermark = b"", 0, 0
        return answered  # type: ignore[no-any-return]


def test_records_that_a_new_leader_does_not_show_yet_are_no_holes(source: Broker, tmp_path: Path) -> None:
    with NewLeader(client_settings(source.bootstrap_servers)) as cluster:
        manifest = create_backup(cluster, BackupStore(str(tmp_path)))
        assert cluster.late == 0
    ends = {topic.name: topic.partitions[0].segments[-1:] for topic in manifest.topics}
    assert {name: [segment.end for segment in segments] for name, segments in ends.items()} == {
        "deletes": [RECORDS],
        "compacts": [RECORDS],
    }


def test_backups_of_one_second_have_an_order(tmp_path: Path, source: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the clock was set back. None replaces an earlier backup."""
    monkeypatch.setattr("ottla.cli.backup.creating.time.strftime", lambda *_: "2026-01-01T00-00-00Z")
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        made = [create_backup(cluster, store).name for _ in range(3)]
    assert len(set(made)) == 3
    assert [manifest.name for manifest in store.manifests()] == made
    assert store.manifest(None).name == made[-1]


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_new_backup_does_not_rely_on_a_damaged_file(source: Broker, tmp_path: Path, damage: str) -> None:
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        first = create_backup(cluster, store)
        (segment,) = next(topic for topic in first.topics if topic.name == "deletes").partitions[0].segments
        (tmp_path / segment.file).unlink() if damage == "gone" else os.truncate(tmp_path / segment.file, 100)
        assert problems_of(store, create_backup(cluster, store)) == []


def test_a_new_backup_mends_a_file_with_other_bytes(source: Broker, tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        first = create_backup(cluster, store)
        (segment,) = next(topic for topic in first.topics if topic.name == "compacts").partitions[0].segments
        (tmp_path / segment.file).write_bytes(bytes(segment.size))
        assert problems_of(store, create_backup(cluster, store)) == []


def test_the_default_of_the_brokers_compacts_too(source: Broker, tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        first = create_backup(cluster, store)
        source.produce("compacts", "later", key="k0")
        second = create_backup(cluster, store)

    def firsts(manifest: Manifest) -> list[int]:
        topic = next(topic for topic in manifest.topics if topic.name == "compacts")
        return [segment.first for segment in topic.partitions[0].segments]

    assert (firsts(first), firsts(second)) == ([0], [0])


def test_one_backup_at_a_time_in_a_folder(source: Broker, tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    with store.locked(), cluster_of(source) as cluster, pytest.raises(BackupError, match="is in use"):
        create_backup(cluster, store)
    with cluster_of(source) as cluster:
        assert create_backup(cluster, store).complete


def test_a_damaged_manifest_leaves_the_other_backups_readable(source: Broker, tmp_path: Path) -> None:
    with cluster_of(source) as cluster:
        name = create_backup(cluster, BackupStore(str(tmp_path))).name
    (tmp_path / "backups" / "9.json").write_text('{"format": 1, "top')
    assert "is complete" in call("backup", "verify", str(tmp_path), name)
    assert "is not the manifest of a backup" in call("backup", "verify", str(tmp_path), code=1)


def _set(tree: Any, *path: Any) -> None:
    *steps, last, value = path
    for step in steps:
        tree = tree[step]
    tree[last] = value


_PARTITION = ("topics", 0, "partitions", 0)
_SEGMENT = (*_PARTITION, "segments", 0)


@pytest.mark.parametrize(
    "path",
    [
        (*_SEGMENT, "file", "../../../../../../../../dev/zero"),
        (*_SEGMENT, "file", "/etc/hostname"),
        (*_SEGMENT, "aborted", [[1]]),
        (*_PARTITION, "start", -1),
        (*_PARTITION, "start", 2**70),
        (*_PARTITION, "end", "many"),
        (*_PARTITION, "index", 5),
        ("topics", 0, "partitions", 5),
    ],
    ids=lambda path: f"{path[-2]}={path[-1]}",
)
def test_a_strange_manifest_is_refused(source: Broker, tmp_path: Path, path: tuple[Any, ...]) -> None:
    with cluster_of(source) as cluster:
        create_backup(cluster, BackupStore(str(tmp_path)))
    changed(tmp_path, lambda tree: _set(tree, *path))
    assert "is not the manifest of a backup" in call("backup", "verify", str(tmp_path), code=1)


def test_a_manifest_cannot_ask_for_endless_fillers(source: Broker, tmp_path: Path) -> None:
    """100,000,000,000 offsets before the first record would be a million requests."""
    with cluster_of(source) as cluster:
        create_backup(cluster, BackupStore(str(tmp_path)))
    for name in ("start", "end"):
        changed(tmp_path, lambda tree, name=name: _set(tree, *_PARTITION, name, 10**11))
    where = ["-b", source.bootstrap_servers]
    refusal = call("backup", "restore", str(tmp_path), *where, code=1)
    assert "-0 at 100,000,000,000), and --max-filler-records is 10,000,000,000" in refusal
    refusal = call("backup", "restore", str(tmp_path), "--max-filler-records", str(10**11), *where, code=1)
    assert "the cluster has" in refusal


def test_a_nested_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "9.json").write_text("[" * 200_000)
    assert "is not the manifest of a backup" in call("backup", "verify", str(tmp_path), code=1)


def test_a_link_to_an_endless_file_is_not_read(source: Broker, tmp_path: Path) -> None:
    store = BackupStore(str(tmp_path))
    with cluster_of(source) as cluster:
        manifest = create_backup(cluster, store)
    segment = manifest.segments()[0]
    (tmp_path / segment.file).unlink()
    (tmp_path / segment.file).symlink_to("/dev/zero")
    assert problems_of(store, manifest) == [f"{segment.file} is missing"]


def test_a_marker_that_comes_late_keeps_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator answers before the markers are in the logs: a batch must not overtake them."""
    begin = Completion._on_committed

    def late(self: Completion, transactional_id: str, outcome: KafkaError | None) -> None:
        asyncio.get_running_loop().call_later(LATE_S, begin, self, transactional_id, outcome)

    monkeypatch.setattr(Completion, "_on_committed", late)
    with Broker() as target, cluster_of(target) as cluster:
        create_topic(cluster, "holes", partitions=1, replication_factor=1)
        writer = PartitionWriter(cluster, "holes", 0, "restore")
        batch = bytes(build_batch([SimpleRecord(0, b"k", b"v")]))
        writer.write(0, 4, [Piece(1, 1, batch), Piece(2, 1, batch)])
        assert end_offsets(cluster, [("holes", 0)]) == {("holes", 0): 4}
        assert [record.offset for record in target.records("holes")] == [1, 2]


def test_a_wrong_name_makes_no_folder(tmp_path: Path) -> None:
    assert call("backup", "list", str(tmp_path / "wrong"), "-o", "json") == "[]\n"
    assert "has no backup" in call("backup", "verify", str(tmp_path / "wrong"), code=1)
    assert not (tmp_path / "wrong").exists()


def test_rules_that_the_cluster_cannot_have_are_named(tmp_path: Path) -> None:
    """All else is restored, and a second restore would be refused."""
    row = [2, "x", 3, "User:a", "*", 3, 3]
    store = BackupStore(str(tmp_path))
    store.save(Manifest(name="9", cluster_id="c", complete=True, acls=[row]))
    with Broker() as target:
        told = call("backup", "restore", str(tmp_path), "-b", target.bootstrap_servers)
    assert "not restored: 1 ACLs: the cluster has no authorizer" in told
