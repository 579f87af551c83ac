"""The metadata log on disk: torn tails, rolls, truncation, deletion of segments that a snapshot covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.records import SimpleRecord, build_batch
from ottla.raft.errors import MetadataLogError
from ottla.raft.metadata_log import MetadataLog, MetadataLogConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import DiskStorage

FIRST = "00000000000000000000.log"


def opened(path: Path, **config: int) -> MetadataLog:
    log = MetadataLog(DiskStorage(), str(path), SystemClock(), MetadataLogConfig(**config))
    log.open(0, 0)
    return log


def append(log: MetadataLog, *values: bytes, epoch: int = 1) -> int:
    records = [SimpleRecord(SystemClock().time_ms(), None, value) for value in values]
    return log.append(build_batch(records, base_offset=log.end_offset, leader_epoch=epoch))


def offsets(log: MetadataLog, start: int = 0) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for header, _ in log.batches(start)]


def test_a_new_log_has_kafkas_files(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert append(log, b"a", b"b") == 1
    assert append(log, b"c") == 2
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000000000.index",
        FIRST,
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_every_torn_tail_is_cut_back_to_the_last_whole_batch(tmp_path: Path) -> None:
    log = opened(tmp_path / "whole")
    append(log, b"kept" * 5)
    whole_size = log.size
    append(log, b"torn" * 5)
    log.close()
    data = (tmp_path / "whole" / FIRST).read_bytes()
    for length in range(whole_size, len(data)):
        folder = tmp_path / f"cut-{length}"
        folder.mkdir()
        (folder / FIRST).write_bytes(data[:length])
        again = opened(folder)
        assert again.end_offset == 1
        assert append(again, b"next") == 1
        again.close()
        assert offsets(opened(folder)) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("position", [0, 7, 8, 16, 17, 21, 40, 61, 75])
def test_a_flipped_bit_ends_the_log_there(tmp_path: Path, position: int) -> None:
    log = opened(tmp_path)
    append(log, b"good")
    bad_at = log.size
    append(log, b"flip" * 8)
    log.close()
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[bad_at + position] ^= 0x80
    (tmp_path / FIRST).write_bytes(data)
    assert opened(tmp_path).end_offset == 1


def test_damage_before_the_last_segment_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=100)
    for _ in range(3):
        append(log, b"x" * 40)
    log.close()
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[-1] ^= 1
    (tmp_path / FIRST).write_bytes(data)
    with pytest.raises(MetadataLogError, match="is damaged at byte 0"):
        opened(tmp_path)


def test_a_missing_segment_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=100)
    for _ in range(3):
        append(log, b"x" * 40)
    log.close()
    (tmp_path / "00000000000000000001.log").unlink()
    with pytest.raises(MetadataLogError, match="a segment is missing"):
        opened(tmp_path)


def test_segments_roll_by_size_and_are_read_as_one(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=250)
    for i in range(10):
        append(log, b"%d" % i * 20)
    assert len(list(tmp_path.glob("*.log"))) > 2
    assert offsets(log) == [(i, i) for i in range(10)]
    assert offsets(log, 7) == [(7, 7), (8, 8), (9, 9)]
    log.close()
    again = opened(tmp_path, segment_bytes=250)
    assert offsets(again) == [(i, i) for i in range(10)]


def test_segments_roll_by_age(tmp_path: Path) -> None:
    class Later(SystemClock):
        ahead = 0

        def time_ms(self) -> int:
            return super().time_ms() + Later.ahead

    log = MetadataLog(DiskStorage(), str(tmp_path), Later(), MetadataLogConfig(segment_ms=1000))
    log.open(0, 0)
    append(log, b"a")
    append(log, b"b")
    Later.ahead = 5000
    append(log, b"c")
    assert len(list(tmp_path.glob("*.log"))) == 2


def test_truncate_across_segments(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=250)
    for i in range(10):
        append(log, b"%d" % i * 20, epoch=1 + i // 4)
    log.truncate(5)
    assert log.end_offset == 5
    assert log.epochs.entries == [(1, 0), (2, 4)]
    append(log, b"new", epoch=9)
    log.close()
    again = opened(tmp_path, segment_bytes=250)
    assert offsets(again) == [(i, i) for i in range(6)]
    assert again.epochs.entries == [(1, 0), (2, 4), (9, 5)]


def test_truncating_inside_a_batch_drops_the_batch(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate(2)
    assert log.end_offset == 1


def test_what_a_snapshot_covers_goes_by_whole_segments(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=250)
    for i in range(10):
        append(log, b"%d" % i * 20, epoch=1 + i // 4)
    assert log.delete_before(5) > 0
    assert log.start_offset == 5
    assert log.epochs.entries[0] == (2, 5)
    first = offsets(log)[0][0]
    assert 0 < first <= 5
    log.close()
    assert len(list(tmp_path.glob("*.index"))) == len(list(tmp_path.glob("*.log")))


def test_index_entries_lead_to_the_right_batch(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for i in range(300):
        append(log, b"v" * 100, b"w" * 100 if i % 3 else b"")
    segment = log.segments[0]
    assert len(segment._offsets) > 5
    for start in range(0, 600, 7):
        base, last = offsets(log, start)[0]
        assert base <= start <= last


def test_a_sync_that_comes_after_the_close_is_nothing(tmp_path: Path) -> None:
    """A node that stops closes its log while a sync may wait for its thread."""
    log = opened(tmp_path)
    append(log, b"x")
    log.close()
    log.sync()
