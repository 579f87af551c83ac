"""Ottla reads the log, snapshots and quorum-state of Apache Kafka 4.3.1, and writes the same bytes for the same content."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.raft.kafka_directories import GOLDEN, copied, directory_id, raft_node

from ottla.metadata.records import decode_frame, encode_frame
from ottla.protocol.records import iterate_batches, iterate_records
from ottla.raft.control import control_batch, decode_control
from ottla.raft.quorum_state import QuorumState, load_quorum_state, store_quorum_state
from ottla.raft.snapshots import decode_snapshot, encode_snapshot
from ottla.runtime.disk import DiskStorage

LOGS = sorted(GOLDEN.glob("*/__cluster_metadata-0/*.log"))
SNAPSHOTS = sorted([*GOLDEN.glob("*/__cluster_metadata-0/*.checkpoint"), *GOLDEN.glob("*/bootstrap.checkpoint")])


def short(path: Path) -> str:
    return f"{path.relative_to(GOLDEN)}"


@pytest.mark.parametrize("path", [*LOGS, *SNAPSHOTS], ids=short)
def test_every_record_encodes_to_the_bytes_that_kafka_wrote(path: Path) -> None:
    data = path.read_bytes()
    seen = 0
    for position, header in iterate_batches(data):
        if header.is_control:
            continue
        for record in iterate_records(data, position):
            assert record.key is None
            assert record.value is not None
            assert encode_frame(decode_frame(record.value), metadata_version=30) == record.value
            seen += 1
    assert seen > 0 or "0-0000000000" in path.name


@pytest.mark.parametrize("path", LOGS, ids=short)
def test_control_batches_are_kafkas_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    batches = [(position, header) for position, header in iterate_batches(data) if header.is_control]
    assert batches
    for position, header in batches:
        messages = [decode_control(record) for record in iterate_records(data, position)]
        built = control_batch(
            [message for message in messages if message is not None],
            base_offset=header.base_offset,
            epoch=header.leader_epoch,
            now_ms=header.base_timestamp,
        )
        assert bytes(built) == data[position : position + header.size]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=short)
def test_snapshots_are_kafkas_byte_for_byte(path: Path) -> None:
    """Kafka stamps each batch of a snapshot with its own time, so the comparison is batch by batch."""
    data = path.read_bytes()
    snapshot = decode_snapshot(data, path.name)
    epoch = next(iterate_batches(data))[1].leader_epoch
    for position, header in iterate_batches(data):
        built = encode_snapshot(
            snapshot.frames,
            epoch=epoch,
            last_contained_timestamp=snapshot.last_contained_timestamp,
            now_ms=header.base_timestamp,
            kraft_version=snapshot.kraft_version,
            voters=snapshot.voters,
        )
        assert built[position : position + header.size] == data[position : position + header.size]
        assert len(built) == len(data)


@pytest.mark.parametrize(("kind", "kraft_version"), [("static", 0), ("dynamic", 1)])
def test_quorum_state_round_trip(kind: str, kraft_version: int, tmp_path: Path) -> None:
    storage = DiskStorage()
    log_dir = copied(kind, tmp_path) / "__cluster_metadata-0"
    original = (log_dir / "quorum-state").read_bytes()
    state = load_quorum_state(storage, str(log_dir))
    assert state == QuorumState(leader_epoch=3 if kind == "static" else 1, leader_id=1)
    store_quorum_state(storage, str(log_dir), state, kraft_version=kraft_version, voters=[1])
    assert (log_dir / "quorum-state").read_bytes() == original


@pytest.mark.parametrize(("kind", "epoch", "end"), [("static", 4, 99), ("dynamic", 2, 94)])
def test_a_node_goes_on_where_kafka_stopped(kind: str, epoch: int, end: int, tmp_path: Path) -> None:
    log_dir = copied(kind, tmp_path)
    node = raft_node(kind, log_dir)
    snapshot = node.start()
    assert (node.epoch, node.end_offset, node.high_watermark) == (epoch, end, end)
    assert node.log.epochs.entries[-1] == (epoch, end - 1)
    assert node.kraft_version == (1 if kind == "dynamic" else 0)
    if kind == "dynamic":
        assert snapshot is not None
        assert node.voters is not None
        assert node.voters.contains(1, directory_id(kind))
        assert node.snapshots.latest == (91, 1)
    node.close()


def test_the_first_leader_of_a_dynamic_quorum_repeats_the_voters(tmp_path: Path) -> None:
    """The 0-0 checkpoint is on this disk only; a follower would never learn of it."""
    log_dir = copied("dynamic", tmp_path)
    metadata_dir = log_dir / "__cluster_metadata-0"
    for path in metadata_dir.iterdir():
        if not path.name.startswith("00000000000000000000-0000000000"):
            path.unlink()
    node = raft_node("dynamic", log_dir)
    node.start()
    node.close()
    data = (metadata_dir / "00000000000000000000.log").read_bytes()
    golden = (GOLDEN / "dynamic/__cluster_metadata-0/00000000000000000000.log").read_bytes()
    (_, ours), (_, theirs) = (next(iterate_batches(log)) for log in (data, golden))
    assert [r.value for r in iterate_records(data)] == [r.value for r in iterate_records(golden)]
    assert ours._replace(crc=0, base_timestamp=0, max_timestamp=0) == theirs._replace(
        crc=0, base_timestamp=0, max_timestamp=0
    )
    again = raft_node("dynamic", log_dir)
    again.start()
    assert again.end_offset == 4, "a later epoch begins with a leader change alone"
    again.close()
