"""Connectors of today on the state that each recorded version left: they go on where they were, nothing twice."""

from __future__ import annotations

import pytest

from ottla.connect.sources import files
from ottla.connect.worker import run_connector
from ottla.pipelines import supervisor
from tests.upgrade import observations as observe
from tests.upgrade.record import RECORDED
from tests.upgrade.scenes import connect as scene
from tests.upgrade.started import started, versions
from tests.upgrade.test_folders import check_records

pytestmark = pytest.mark.timeout(180)
EXPECTED = {
    "lines": [f"line {n}" for n in range(9)],
    "east.lines": [f"line {n}" for n in range(9)],
    "west.lines": [f"line {n}" for n in range(9)],
    "shop-orders": [f'{{"id": {n}, "what": "order {n}"}}' for n in range(9)],
}


@pytest.mark.parametrize("version", versions("connect"))
def test_connectors_go_on_where_they_were(version, tmp_path, monkeypatch):
    with started(RECORDED / version / "connect.tar.xz", tmp_path / "folder") as node:
        check_records(node)
        manifest, folder, servers = node.manifest, node.folder, node.address()
        with observe.connected(servers) as cluster:
            assert observe.groups(cluster) == manifest["groups"]
        assert scene.outputs(folder) == manifest["outputs"]
        # An unpacked file has another inode: the source sees the one that it was recorded with.
        monkeypatch.setattr(files, "identity", lambda path: manifest["file_identity"])
        connectors = [scene.settings(config, folder, servers) for config in manifest["connectors"]]
        client = {"bootstrap.servers": servers}
        assert [run_connector(config, client, once=True) for config in connectors] == [0] * len(connectors)
        scene.add_input(folder, range(5, 9))
        assert [run_connector(config, client, once=True) for config in connectors] == [4] * len(connectors)
        found = observe.records(servers, [(topic, 0) for topic in EXPECTED])
        assert {topic: [row[4] for row in found[f"{topic}-0"]["rows"]] for topic in EXPECTED} == EXPECTED
        assert scene.outputs(folder) == {name: list(range(9)) for name in ("sql", "delta", "parquet")}
        states = {config["name"]: supervisor.current(str(folder / "state"), config["name"]) for config in connectors}
        assert {name: (one["state"], one["rows"]) for name, one in states.items()} == dict.fromkeys(
            states, ("finished", 5)
        )
