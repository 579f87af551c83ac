"""Folders of other kinds that each recorded version left behind: killed, and encrypted at rest."""

from __future__ import annotations

import pytest

from ottla.server.errors import StartupError
from tests.upgrade import observations as observe
from tests.upgrade.record import RECORDED
from tests.upgrade.rows import START_MS, Record, send, send_with
from tests.upgrade.scenes.steps import transactional_producer
from tests.upgrade.started import Started, started, versions

pytestmark = pytest.mark.timeout(180)


def check_records(node: Started) -> None:
    recorded = node.manifest["records"]
    answered = observe.records(node.address(), observe.places(node.manifest["topics"]))
    for place, expected in recorded.items():
        assert answered[place] == expected, place


@pytest.mark.parametrize("version", versions("killed"))
def test_a_killed_node_recovers(version, tmp_path):
    """Every acknowledged record, producer, offset and the open transaction; then the transaction's producer goes on."""
    with started(RECORDED / version / "killed.tar.xz", tmp_path / "folder") as node:
        check_records(node)
        servers, recorded = node.address(), node.manifest
        with observe.connected(servers) as cluster:
            topics = observe.topics(cluster)
            assert topics == recorded["topics"]
            assert observe.producers(cluster, observe.places(topics)) == recorded["producers"]
            assert observe.transactions(cluster) == recorded["transactions"]
            assert observe.groups(cluster) == recorded["groups"]
        clerk = transactional_producer(servers, "clerk")
        clerk.begin_transaction()
        send_with(clerk, "ledger", [Record(b"clerk", b"after the kill", START_MS)])
        clerk.commit_transaction(30)
        found = observe.records(servers, [("ledger", 0)])["ledger-0"]
        committed = [row[4] for row in found["rows"] if row[0] not in found["not_committed"]]
        assert committed == ["entry 0", "after the kill"]


@pytest.mark.parametrize("version", versions("encrypted"))
def test_an_encrypted_folder_is_read_with_its_keys(version, tmp_path):
    """Segments of both master keys are read; erased values stay erased; nothing lies on the disk in plain, then or now."""
    folder = tmp_path / "folder"
    with started(RECORDED / version / "encrypted.tar.xz", folder) as node:
        needle = node.manifest["needle"].encode()
        check_records(node)
        send(node.address(), "secret", [Record(b"later", needle + b" by this version", START_MS)])
        found = observe.records(node.address(), [("secret", 0)])["secret-0"]
        assert found["rows"][-1][4] == f"{needle.decode()} by this version"
        assert [
            row[4] for row in node.manifest["records"]["people-0"]["rows"] if row[3] == node.manifest["erased_key"]
        ] == [None] * 8
    files = [one for one in (folder / "data").rglob("*") if one.is_file()]
    assert len(files) > 50
    assert [one for one in files if needle in one.read_bytes()] == []


@pytest.mark.parametrize("version", versions("encrypted"))
def test_an_encrypted_folder_is_not_read_with_other_keys(version, tmp_path):
    folder = tmp_path / "folder"
    with started(RECORDED / version / "encrypted.tar.xz", folder):
        pass
    lines = (folder / "master").read_text().splitlines()
    (folder / "master").write_text("".join(f"{line.partition(':')[0]}:{'A' * 43}=\n" for line in lines))
    with pytest.raises(StartupError, match="key"), started(RECORDED / version / "encrypted.tar.xz", folder):
        pass
