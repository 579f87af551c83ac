"""Three nodes of today on the folders that each recorded version left when it was killed in the middle of a commit."""

from __future__ import annotations

import pytest

from ottla.client.topics import list_topics
from ottla.client.transactions import describe_transaction
from tests.upgrade import observations as observe
from tests.upgrade.archive import unpack
from tests.upgrade.record import RECORDED
from tests.upgrade.rows import START_MS, Record, send_with
from tests.upgrade.scenes import cluster as scene
from tests.upgrade.scenes.steps import await_true, transactional_producer
from tests.upgrade.started import manifest_of, versions

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("version", versions("cluster"))
def test_a_prepared_commit_is_completed(version, tmp_path):
    """By the nodes themselves: the marker reaches every partition, and the group's offset counts."""
    archive = RECORDED / version / "cluster.tar.xz"
    manifest = manifest_of(archive)
    unpack(archive, tmp_path / "folder")
    with scene.running(tmp_path / "folder", tmp_path / "work", manifest["properties"]) as servers:
        addresses = ",".join(server.bootstrap_servers for server in servers.values())
        with observe.connected(addresses) as cluster:
            await_true(
                lambda: all(row.leader_id > 0 for one in list_topics(cluster) for row in one.partitions), "no leader"
            )
            assert observe.cluster_id(cluster) == manifest["cluster_id"]
            assert observe.topics(cluster) == manifest["topics"]

            def completed():
                _, state = describe_transaction(cluster, scene.PREPARED)
                assert state.producer_id == manifest["transaction"]["producer_id"]
                return state.transaction_state == "CompleteCommit"

            await_true(completed, "the prepared transaction is not completed")
            found = observe.records(addresses, observe.places(manifest["topics"]))
            for place, one in found.items():
                assert one["rows"] == manifest["records"][place]["rows"], place
                assert one["not_committed"] == [], place
                assert one["stable_end"] == one["end"], place
            assert observe.committed(cluster, "prepared-readers")["replicated-0"][0] == 4
        clerk = transactional_producer(addresses, scene.PREPARED)
        clerk.begin_transaction()
        send_with(clerk, "lonely", [Record(b"clerk", b"by this version", START_MS)])
        clerk.commit_transaction(30)
        rows = observe.records(addresses, [("lonely", 0)])["lonely-0"]
        assert [row[4] for row in rows["rows"] if row[0] not in rows["not_committed"]] == [
            "prepared",
            "by this version",
        ]
