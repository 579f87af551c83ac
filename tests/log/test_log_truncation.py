"""The truncation alone: what reaches the disk first, what stays pending after an error, what a repetition finishes."""

from __future__ import annotations

import pytest

from ottla.log.checkpoints import read_offsets
from ottla.log.file_names import CLEANED_SUFFIX, RECOVERY_POINT_CHECKPOINT
from ottla.log.log_truncation import LogTruncation
from ottla.log.segment import Segment
from ottla.log.segment_exchange import SegmentExchange
from ottla.model.errors import ErrorCode, KafkaError

from .log_parts import FOLDER, ROOT, Parts
from .partition_files import NOW, PARTITION


def truncation_of(parts: Parts) -> LogTruncation:
    return LogTruncation(
        segments=parts.segments,
        offsets=parts.offsets,
        epochs=parts.epochs,
        producers=parts.producers,
        snapshots=parts.snapshots,
        erasure_notes=parts.erasure_notes,
        roll=parts.roll,
    )


@pytest.fixture
def parts() -> Parts:
    """Segments at 0, 2 and 4, an epoch each; producer 7 wrote the batches of the first two."""
    parts = Parts()
    for number in range(3):
        parts.append(b"a", producer_id=7 if number < 2 else 8, leader_epoch=number, roll=number > 0)
        parts.append(b"b", leader_epoch=number)
    assert parts.bases == [0, 2, 4]
    parts.offsets.advance_high_watermark(6)
    return parts


def test_everything_above_the_offset_goes(parts: Parts) -> None:
    assert truncation_of(parts).truncate_to(3, NOW)
    assert parts.bases == [0, 2]
    assert parts.offsets.log_end_offset == parts.offsets.high_watermark == 3
    assert parts.epochs.entries == [(0, 0), (1, 2)]
    assert list(parts.producers.producers) == [7]
    assert parts.names(".snapshot") == [f"{2:020d}.snapshot"]


def test_at_the_end_only_epochs_without_a_record_go(parts: Parts) -> None:
    parts.epochs.assign(9, 6)
    assert not truncation_of(parts).truncate_to(6, NOW)
    assert parts.epochs.entries == [(0, 0), (1, 2), (2, 4)]
    assert parts.offsets.generation == 0


def test_no_checkpoint_covers_what_is_cut(parts: Parts) -> None:
    """The stored recovery point is lowered before the first file changes: here that change fails."""
    checkpoints = parts.log_dir.checkpoints
    checkpoints.write(RECOVERY_POINT_CHECKPOINT, {PARTITION: 6})
    parts.disk.fail_at = ".log.deleted"
    with pytest.raises(OSError, match="injected"):
        truncation_of(parts).truncate_to(1, NOW)
    assert parts.segments[-1].base_offset == 4
    assert read_offsets(parts.disk, f"{ROOT}/{RECOVERY_POINT_CHECKPOINT}") == {PARTITION: 1}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("where", [".log.deleted", "leader-epoch-checkpoint"])
def test_an_interrupted_truncation_is_finished_before_other_work(parts: Parts, everything: bool, where: str) -> None:
    truncation = truncation_of(parts)
    parts.disk.fail_at = where
    with pytest.raises(OSError, match="injected"):
        _ = truncation.start_over_at(9, 9, NOW) if everything else truncation.truncate_to(1, NOW)
    assert truncation.pending is not None
    assert parts.offsets.log_end_offset == (9 if everything else 1), "the log ends there at once"
    truncation.check_usable()
    assert truncation.pending is None
    assert parts.bases == ([9] if everything else [0])
    assert not parts.epochs.unwritten


def test_while_the_disk_refuses_the_log_is_not_usable(parts: Parts) -> None:
    truncation = truncation_of(parts)
    for _ in range(2):
        parts.disk.fail_at = f"{4:020d}.log.deleted"
        with pytest.raises((OSError, KafkaError)) as refused:
            truncation.truncate_to(1, NOW) if truncation.pending is None else truncation.check_usable()
    assert isinstance(refused.value, KafkaError)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not parts.log_dir.offline


def test_below_the_first_segment_the_log_starts_over() -> None:
    parts = Parts(10)
    parts.fill(2)
    truncation_of(parts).truncate_to(4, NOW)
    assert parts.bases == [4]
    assert (parts.offsets.log_start_offset, parts.offsets.log_end_offset) == (4, 4)
    assert parts.names(".snapshot") == []


def _cleaned(parts: Parts) -> Segment:
    """A compacted segment for the first two: with the batches of the first."""
    first = parts.segments[0]
    new = Segment(parts.disk, parts.log_dir.open_files, FOLDER, 0, created_ms=NOW, suffix=CLEANED_SUFFIX)
    new.create()
    data = first.file.pread(first.size, 0)
    new.write(data, len(data))
    return new


class TestExchange:
    def test_the_oldest_go_with_their_snapshots(self, parts: Parts) -> None:
        exchange = SegmentExchange(parts.segments, parts.snapshots, parts.roll)
        assert exchange.delete_oldest(parts.segments[:2], NOW) == 2
        assert parts.bases == [4]
        assert parts.names(".snapshot") == [f"{4:020d}.snapshot"]

    def test_when_all_go_an_empty_segment_takes_their_place(self, parts: Parts) -> None:
        exchange = SegmentExchange(parts.segments, parts.snapshots, parts.roll)
        exchange.delete_oldest(list(parts.segments), NOW)
        assert parts.bases == [6]
        assert parts.segments.size_bytes == 0

    def test_an_interrupted_exchange_is_finished_later(self, parts: Parts) -> None:
        exchange = SegmentExchange(parts.segments, parts.snapshots, parts.roll)
        old = parts.segments[:2]
        new = _cleaned(parts)
        parts.disk.fail_at = f"{2:020d}.log.deleted"
        with pytest.raises(OSError, match="injected"):
            exchange.replace([new], old, NOW)
        assert parts.bases == [0, 4], "the new segment is the log's, under its .swap name"
        assert new.suffix == ".swap"
        exchange.finish()
        assert new.suffix == ""
        assert parts.names(".swap", ".cleaned") == []

    def test_a_refused_rename_leaves_the_old_segments(self, parts: Parts) -> None:
        exchange = SegmentExchange(parts.segments, parts.snapshots, parts.roll)
        parts.disk.fail_at = ".log.swap"
        with pytest.raises(OSError, match="injected"):
            exchange.replace([_cleaned(parts)], parts.segments[:2], NOW)
        assert parts.bases == [0, 2, 4]
        assert parts.names(".swap", ".cleaned") == []
