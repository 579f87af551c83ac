"""The recorder of today: what it records now passes the checks that it will have to pass when it is history."""

from __future__ import annotations

import lzma

import pytest

from tests.upgrade import observations as observe
from tests.upgrade.archive import pack, unpack
from tests.upgrade.checks import CHECKS
from tests.upgrade.record import RECORDED, record
from tests.upgrade.scenes.node import observed
from tests.upgrade.started import manifest_of, started, versions
from tests.upgrade.test_folders import check_records

pytestmark = pytest.mark.timeout(180)


def test_a_node_is_recorded_and_read_again(tmp_path):
    record("node", tmp_path / "out", tmp_path / "place", "today")
    with started(tmp_path / "out" / "node.tar.xz", tmp_path / "folder") as node:
        with observe.connected(node.address()) as cluster:
            node.observed = observed(cluster, node.address())
        for check in CHECKS:
            check(node)


@pytest.mark.parametrize("scene", ["killed", "encrypted", "connect"])
def test_other_folders_are_recorded_and_read_again(scene, tmp_path):
    record(scene, tmp_path / "out", tmp_path / "place", "today")
    with started(tmp_path / "out" / f"{scene}.tar.xz", tmp_path / "folder") as node:
        check_records(node)


def test_the_same_folder_makes_the_same_archive(tmp_path):
    archive = RECORDED / versions("killed")[0] / "killed.tar.xz"
    folder = unpack(archive, tmp_path / "folder")
    pack(folder, tmp_path / "again.tar.xz", manifest_of(archive)["recorded_at_ms"] // 1000)
    # Unpacked: another version of the library may compress to other bytes.
    assert lzma.decompress((tmp_path / "again.tar.xz").read_bytes()) == lzma.decompress(archive.read_bytes())


def test_the_archives_are_small():
    files = [one for one in RECORDED.rglob("*") if one.is_file()]
    assert sum(one.stat().st_size for one in files) < 2_000_000


@pytest.mark.soak
def test_a_cluster_and_a_pipeline_are_recorded(tmp_path):
    for scene in ("cluster", "pipeline"):
        record(scene, tmp_path / "out", tmp_path / "place", "today")
    with started(tmp_path / "out" / "pipeline.tar.xz", tmp_path / "folder") as node:
        check_records(node)
