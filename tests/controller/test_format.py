"""Formatting: Kafka's files, Kafka's lines, and refusals that touch nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.controller.node import CLUSTER_ID, Node, node_properties
from tests.raft.kafka_directories import GOLDEN

from ottla.controller.bootstrap import read_bootstrap
from ottla.controller.format import FormatError, FormatRequest, format_storage
from ottla.metadata.meta_properties import MetaPropertiesError, read_meta_properties
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.ids import Uuid
from ottla.raft.snapshots import decode_snapshot
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.runtime.clock import SystemClock, SystemRandom
from ottla.runtime.disk import DiskStorage

HERE = (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),)


def formatted(*log_dirs: Path, **options: object) -> list[str]:
    request = FormatRequest(
        **{"cluster_id": CLUSTER_ID, "node_id": 1, "log_dirs": [str(d) for d in log_dirs], **options}
    )
    return format_storage(DiskStorage(), SystemClock(), SystemRandom(), request)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_static_quorum_in_two_directories(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    assert formatted(b, a, metadata_log_dir=str(a)) == [
        f"Formatting metadata directory {a} with metadata.version 4.3-IV0.",
        f"Formatting data directory {b} with metadata.version 4.3-IV0.",
    ]
    assert files(a) == files(b) == {"meta.properties", "bootstrap.checkpoint"}
    ids = {read_meta_properties(DiskStorage(), str(d)).directory_id for d in (a, b)}
    assert len(ids) == 2


def test_the_bootstrap_records_are_kafkas(tmp_path: Path) -> None:
    formatted(tmp_path / "a")
    ours = decode_snapshot((tmp_path / "a/bootstrap.checkpoint").read_bytes(), "ours")
    theirs = decode_snapshot((GOLDEN / "static/bootstrap.checkpoint").read_bytes(), "theirs")
    assert ours == theirs


def test_standalone(tmp_path: Path) -> None:
    assert formatted(tmp_path / "a", standalone=HERE) == [
        f"Formatting dynamic metadata voter directory {tmp_path / 'a'} with metadata.version 4.3-IV0."
    ]
    path = tmp_path / "a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    snapshot = decode_snapshot(path.read_bytes(), path.name)
    own = read_meta_properties(DiskStorage(), str(tmp_path / "a")).directory_id
    assert (snapshot.kraft_version, snapshot.frames) == (1, [])
    assert snapshot.voters == VoterSet((Voter(1, own, HERE),))


def test_initial_controllers(tmp_path: Path) -> None:
    mine = Uuid(b"m" * 16)
    voters = VoterSet((Voter(1, mine, HERE), Voter(2, Uuid(b"n" * 16), HERE)))
    formatted(tmp_path / "a", initial_controllers=voters)
    assert read_meta_properties(DiskStorage(), str(tmp_path / "a")).directory_id == mine
    assert "dynamic metadata directory" in formatted(tmp_path / "b", initial_controllers=voters, node_id=7)[0]


def test_release_versions_and_features(tmp_path: Path) -> None:
    def levels(name: str, **options: object) -> dict[str, int]:
        formatted(tmp_path / name, **options)
        records = read_bootstrap(DiskStorage(), str(tmp_path / name))
        return {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}

    assert levels("a", release_version="3.9") == {"metadata.version": 21}
    assert levels("b", release_version="4.0-IV3") == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert levels("c", features={"transaction.version": 0})["metadata.version"] == 30
    assert "transaction.version" not in levels("d", features={"transaction.version": 0})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"node_id": -1}, "You must specify a valid non-negative node ID."),
        ({"cluster_id": ""}, "You must specify the cluster id."),
        ({"log_dirs": []}, "You must specify at least one directory to format"),
        ({"release_version": "9.9"}, "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3, "),
        ({"release_version": "4.0", "features": {"metadata.version": 25}}, "Use --release-version instead of"),
        ({"features": {"no.such": 1}}, "Unsupported feature: no.such. Supported features are: eligible"),
        ({"features": {"group.version": 9}}, "No feature:group.version with feature level 9"),
        ({"features": {"kraft.version": 1}}, "Cannot set kraft.version to 1 unless"),
        ({"features": {"kraft.version": 0}, "standalone": HERE}, "Cannot set kraft.version to 0 if"),
        (
            {"release_version": "3.9", "features": {"eligible.leader.replicas.version": 1}},
            "depends on metadata.version",
        ),
    ],
)
def test_refusals_touch_nothing(tmp_path: Path, options: dict[str, object], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        formatted(tmp_path / "a", **options)
    assert not list(tmp_path.iterdir())


def test_formatted_and_foreign_directories(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    formatted(a)
    before = (a / "meta.properties").read_bytes()
    with pytest.raises(FormatError, match=f"Log directory {a} is already formatted. Use --ignore-formatted"):
        formatted(a, b)
    assert not b.exists()
    with pytest.raises(MetaPropertiesError, match=r"Invalid cluster\.id in"):
        formatted(a, b, cluster_id="AAAAAAAAAAAAAAAAAAAAAA", ignore_formatted=True)
    with pytest.raises(MetaPropertiesError, match="Stored node id 1 doesn't match previous node id 2"):
        formatted(a, b, node_id=2, ignore_formatted=True)
    assert not b.exists()
    assert formatted(a, b, ignore_formatted=True) == [f"Formatting data directory {b} with metadata.version 4.3-IV0."]
    assert formatted(a, b, ignore_formatted=True) == ["All of the log directories are already formatted."]
    assert (a / "meta.properties").read_bytes() == before
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match="is not a directory"):
        formatted(tmp_path / "file")


@pytest.mark.parametrize("release", ["3.3-IV3", "3.6", "3.9", "4.0", "4.2"])
def test_a_cluster_of_an_older_release_starts_and_works(tmp_path: Path, release: str) -> None:
    from ottla.protocol.generated.create_topics_request import CreatableTopic, CreateTopicsRequest

    node = Node(tmp_path / "data", node_properties(tmp_path / "data"))
    node.format(release_version=release)
    node.start().join()
    assert node.submit(CreateTopicsRequest([CreatableTopic("t", 2, 1)]), 7).topics[0].error_code == 0
    image = node.image
    node.kill()
    again = Node(tmp_path / "data").start()
    assert again.image == image
    again.join()
    assert {p.leader for _, _, p in again.image.partitions()} == {1}
