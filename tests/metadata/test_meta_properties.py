"""meta.properties: read from Kafka's, refused when it belongs elsewhere."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.raft.kafka_directories import GOLDEN, directory_id

from ottla.metadata.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    complete_directory_ids,
    load_ensemble,
    read_meta_properties,
    verify_ensemble,
    write_meta_properties,
)
from ottla.model.ids import Uuid
from ottla.runtime.disk import DiskStorage

from .meta_variants import CLUSTER, VARIANTS, write


def test_kafkas_file_and_ours(tmp_path: Path) -> None:
    properties_read = read_meta_properties(DiskStorage(), str(GOLDEN / "static"))
    assert properties_read == MetaProperties(cluster_id=CLUSTER, node_id=1, directory_id=directory_id("static"))
    write_meta_properties(DiskStorage(), str(tmp_path), properties_read, 1794740788000)
    ours = (tmp_path / "meta.properties").read_text().splitlines()
    theirs = (GOLDEN / "static/meta.properties").read_text().splitlines()
    assert sorted(ours[2:]) == sorted(theirs[2:])
    assert ours[1] == "#Sun Nov 15 11:06:28 UTC 2026"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version=1\nnode.id=1\n", "cluster.id was not found"),
        ("version=1\ncluster.id=x\n", "node.id was not found"),
        ("version=7\ncluster.id=x\nnode.id=1\n", "Unknown meta.properties version number 7"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "base-10"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n", "directory.id as a Uuid"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(MetaPropertiesError, match=problem):
        read_meta_properties(DiskStorage(), str(tmp_path))


def properties(cluster: str = CLUSTER, node: int = 1, directory: int = 200) -> MetaProperties:
    return MetaProperties(cluster_id=cluster, node_id=node, directory_id=Uuid(bytes(15) + bytes([directory])))


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (properties("another"), "Invalid cluster.id in: /b/meta.properties. Expected 5L6g3nShT-eMCtK--X86sw, but read"),
        (properties(node=2), "Stored node id 2 doesn't match previous node id 1 in /b/meta.properties"),
        (properties(directory=200), "Duplicate directory ID"),
        (properties(directory=2), "Invalid reserved directory ID"),
    ],
)
def test_directories_that_do_not_belong_together(second: MetaProperties, problem: str) -> None:
    with pytest.raises(MetaPropertiesError, match=problem):
        verify_ensemble({"/a": properties(), "/b": second})
    verify_ensemble({"/a": properties(), "/b": properties(directory=201)})


def test_a_server_wants_every_directory_formatted(tmp_path: Path) -> None:
    storage = DiskStorage()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_meta_properties(storage, str(tmp_path / "a"), properties(), 0)
    both = [str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(MetaPropertiesError, match=r"No `meta.properties` found in .*/b"):
        load_ensemble(storage, both, metadata_log_dir=both[0], node_id=1)
    write_meta_properties(storage, both[1], properties(directory=201), 0)
    assert set(load_ensemble(storage, both, metadata_log_dir=both[0], node_id=1)) == set(both)
    with pytest.raises(MetaPropertiesError, match="Stored node id 1 doesn't match previous node id 5"):
        load_ensemble(storage, both, metadata_log_dir=both[0], node_id=5)


def test_a_directory_of_an_older_kafka_gets_its_id_once(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=1\n")
    storage = DiskStorage()
    loaded = load_ensemble(storage, [], metadata_log_dir=str(tmp_path), node_id=1)
    fresh = Uuid(b"f" * 16)
    complete = complete_directory_ids(storage, loaded, lambda: fresh, 0)
    assert complete[str(tmp_path)].directory_id == fresh
    again = load_ensemble(storage, [], metadata_log_dir=str(tmp_path), node_id=1)
    assert complete_directory_ids(storage, again, lambda: Uuid(b"g" * 16), 0) == complete


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_start_or_are_refused_as_in_kafka(tmp_path: Path, name: str) -> None:
    """`tests/interop/test_meta_properties_compared.py` (soak) shows the same files to Apache Kafka."""
    directories = tmp_path / "a", tmp_path / "b"
    write(directories, VARIANTS[name])
    paths = [str(path) for path in directories]
    variant = VARIANTS[name]
    starts = variant.starts and not variant.refused_here
    refusal = contextlib.nullcontext() if starts else pytest.raises(MetaPropertiesError)
    with refusal:
        load_ensemble(DiskStorage(), paths, metadata_log_dir=paths[0], node_id=1)
