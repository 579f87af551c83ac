"""A node as the only voter: its files before it leads, commits, snapshots and their retention."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import Uuid
from ottla.raft.config import RaftConfig
from ottla.raft.errors import BatchTooLargeError, MetadataLogError, QuorumStateError, RaftError, SnapshotError
from ottla.raft.metadata_log import MetadataLogConfig
from ottla.raft.node import RaftNode
from ottla.raft.snapshot_store import SnapshotRetention
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import Voter, VoterSet
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import DiskFile, DiskStorage

DIRECTORY = Uuid(bytes(range(100, 116)))
ALONE = VoterSet((Voter(1),))


def make(path: Path, *, storage: Any = None, voters: VoterSet | None = ALONE, **retention: int) -> RaftNode:
    config = RaftConfig(
        node_id=1,
        directory_id=DIRECTORY,
        static_voters=voters,
        log=MetadataLogConfig(segment_bytes=2000),
        retention=SnapshotRetention(**retention),
    )
    return RaftNode(storage or DiskStorage(), str(path / "__cluster_metadata-0"), SystemClock(), config)


def flush(node: RaftNode) -> None:
    end = node.unflushed()
    assert end is not None
    node.sync()
    assert node.flushed(end)


class Recorded(DiskStorage):
    """Records the order of writes and syncs."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def write_atomic(self, path: str, data: bytes) -> None:
        super().write_atomic(path, data)
        name = path.rsplit("/", 1)[1]
        self.events.append(f"{name} {data.decode()}" if name == "quorum-state" else name)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        events = self.events

        class File(DiskFile):
            __slots__ = ()

            def pwrite(self, data: Any, position: int) -> None:
                super().pwrite(data, position)
                events.append("append")

            def sync(self) -> None:
                super().sync()
                events.append("sync")

        opened = super().open(path, create=create)
        return File(path, os.dup(opened.fileno()))


def test_the_vote_is_durable_before_the_node_leads(tmp_path: Path) -> None:
    storage = Recorded()
    node = make(tmp_path, storage=storage)
    node.start()
    votes = [event for event in storage.events if event.startswith("quorum-state")]
    assert [json.loads(vote.split(" ", 1)[1])["votedId"] for vote in votes] == [1, -1]
    assert [json.loads(vote.split(" ", 1)[1])["leaderId"] for vote in votes] == [-1, 1]
    assert storage.events.index(votes[1]) < storage.events.index("append") < storage.events.index("sync")
    assert (node.leader_id, node.epoch, node.high_watermark) == (1, 1, 1)


def test_epochs_rise_with_every_start(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        node = make(tmp_path)
        node.start()
        assert node.epoch == epoch
        node.close()


def test_a_lost_quorum_state_does_not_reuse_an_epoch_of_the_log(tmp_path: Path) -> None:
    for _ in range(3):
        node = make(tmp_path)
        node.start()
        node.close()
    (tmp_path / "__cluster_metadata-0/quorum-state").unlink()
    node = make(tmp_path)
    node.start()
    assert node.epoch == 4


def test_only_what_was_synced_is_committed(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    assert node.unflushed() is None
    assert node.append([b"a", b"b"]) == 2
    end = node.unflushed()
    assert node.append([b"c"]) == 3
    assert [batch.frames for batch in node.committed(0)] == [[]]
    node.sync()
    assert end == 3
    assert node.flushed(end)
    assert node.high_watermark == 3
    assert [batch.frames for batch in node.committed(0)] == [[], [b"a", b"b"]]
    assert not node.flushed(end), "an older flush that reports late moves nothing"
    flush(node)
    assert [batch.frames for batch in node.committed(1)] == [[b"a", b"b"], [b"c"]]


def test_everything_appended_is_there_after_a_kill(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    for i in range(50):
        node.append([b"%d" % i, b"x" * 50])
    node.sync()
    again = make(tmp_path)
    again.start()
    assert [b.frames[0] for b in again.committed(0) if b.frames] == [b"%d" % i for i in range(50)]
    assert [b.epoch for b in again.committed(0)] == [1] * 51 + [2]


def test_atomic_records_that_do_not_fit_one_batch_are_refused(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    frames = [b"x" * 1_000_000] * 9
    with pytest.raises(BatchTooLargeError):
        node.append(frames)
    assert node.append(frames, atomic=False) == 9
    flush(node)
    assert sum(len(batch.frames) for batch in node.committed(0)) == 9


def test_snapshot_and_what_follows_it(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    node.append([b"old"])
    flush(node)
    snapshot_id = node.snapshot_id(1)
    assert snapshot_id == SnapshotId(2, 1)
    node.write_snapshot(snapshot_id, [b"state"], 123)
    node.snapshot_written(snapshot_id)
    node.append([b"new"])
    flush(node)
    node.close()
    again = make(tmp_path)
    snapshot = again.start()
    assert snapshot is not None
    assert (snapshot.frames, snapshot.last_contained_timestamp) == ([b"state"], 123)
    assert again.snapshots.latest == snapshot_id
    assert [b.frames for b in again.committed(2)] == [[b"new"], []]


def test_a_snapshot_is_due_by_bytes_or_by_time(tmp_path: Path) -> None:
    node = make(tmp_path, max_record_bytes=300, max_interval_ms=0)
    node.start()
    assert not node.snapshots.due()
    node.append([b"x" * 100])
    assert not node.snapshots.due()
    node.append([b"x" * 200])
    assert node.snapshots.due()
    node.snapshots.reset_new_bytes()
    assert not node.snapshots.due()
    soon = make(tmp_path / "soon", max_interval_ms=-1)
    soon.start()
    soon.append([b"x"])
    assert not soon.snapshots.due()


def test_what_no_snapshot_holds_counts_after_a_restart_too(tmp_path: Path) -> None:
    node = make(tmp_path, max_interval_ms=0)
    node.start()
    node.append([b"old" * 200])
    flush(node)
    node.write_snapshot(node.snapshot_id(1), [], 0)
    node.append([b"new" * 50])
    flush(node)
    node.close()
    for limit, due in ((150, True), (500, False)):
        again = make(tmp_path, max_record_bytes=limit, max_interval_ms=0)
        again.start()
        assert again.snapshots.due() == due
        again.close()


def test_old_snapshots_and_the_log_below_them_go(tmp_path: Path) -> None:
    node = make(tmp_path, retention_bytes=4000)
    node.start()
    for i in range(60):
        node.append([b"%d" % i * 60])
        flush(node)
        if i % 10 == 9:
            snapshot_id = node.snapshot_id(node.high_watermark - 1)
            node.write_snapshot(snapshot_id, [b"s" * 200], 0)
            node.snapshot_written(snapshot_id)
    files = sorted(path.name for path in (tmp_path / "__cluster_metadata-0").iterdir())
    assert len(node.snapshots.ids) < 6
    assert node.log.start_offset == node.snapshots.ids[0].end_offset > 0
    assert "00000000000000000000.log" not in files
    node.close()
    again = make(tmp_path)
    assert again.start() is not None
    assert again.end_offset == 62


def test_snapshots_past_their_age_go_but_never_the_last(tmp_path: Path) -> None:
    node = make(tmp_path, retention_ms=0)
    node.start()
    for _ in range(3):
        node.append([b"x"])
        flush(node)
        snapshot_id = node.snapshot_id(node.high_watermark - 1)
        node.write_snapshot(snapshot_id, [], 0)
        for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"):
            os.utime(path, (0, 0))
        node.snapshot_written(snapshot_id)
        assert node.snapshots.ids == [snapshot_id]


def test_half_written_snapshots_are_not_there(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    node.close()
    folder = tmp_path / "__cluster_metadata-0"
    for name in ("1-0000000001.checkpoint.part", "00000000000000000001-0000000001.checkpoint.tmp"):
        (folder / name).write_bytes(b"half")
    again = make(tmp_path)
    assert again.start() is None
    assert not [path for path in folder.iterdir() if path.name.endswith((".part", ".tmp"))]


@pytest.mark.parametrize("damage", ["cut", "flip", "no footer"])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    node = make(tmp_path)
    node.start()
    node.append([b"x"])
    flush(node)
    node.write_snapshot(node.snapshot_id(1), [b"state" * 10], 0)
    node.close()
    (path,) = (tmp_path / "__cluster_metadata-0").glob("*.checkpoint")
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-10]
    elif damage == "flip":
        data[100] ^= 1
    else:
        data = data[:-75]
    path.write_bytes(data)
    with pytest.raises(SnapshotError):
        make(tmp_path).start()


def test_a_log_whose_beginning_nobody_covers_is_refused(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    for i in range(60):
        node.append([b"%d" % i * 60])
    flush(node)
    node.close()
    (tmp_path / "__cluster_metadata-0/00000000000000000000.log").unlink()
    with pytest.raises(MetadataLogError, match="no snapshot covers"):
        make(tmp_path).start()


def test_voters_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(RaftError, match="no voters are known"):
        make(tmp_path, voters=None).start()
    with pytest.raises(RaftError, match="is not a voter"):
        make(tmp_path, voters=VoterSet((Voter(7),))).start()
    with pytest.raises(RaftError, match="is not a voter"):
        make(tmp_path, voters=VoterSet((Voter(1, Uuid(bytes(15) + b"\x77")),))).start()


def test_one_of_several_voters_does_not_lead_by_itself(tmp_path: Path) -> None:
    node = make(tmp_path, voters=VoterSet((Voter(1), Voter(2))))
    node.start()
    assert (node.leader_id, node.epoch, node.high_watermark) == (-1, 0, -1)
    with pytest.raises(RaftError, match="does not lead"):
        node.append([b"x"])


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"data_version":7}', b'{"data_version":0,"leaderEpoch":"x"}'])
def test_a_damaged_quorum_state_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    (folder / "quorum-state").write_bytes(content)
    with pytest.raises(QuorumStateError, match="quorum-state"):
        make(tmp_path).start()
