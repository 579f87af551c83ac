"""The ordered segments alone: finding, reading, rolling, removing; after an OSError the list agrees with the files."""

from __future__ import annotations

import pytest
from tests.log.removed import carried_out

from ottla.env.config import TopicConfig
from ottla.log.log_directory import LogDirectory
from ottla.log.log_segments import LogSegments
from ottla.log.segment import Segment
from ottla.runtime.disk import DiskStorage

from .log_parts import FOLDER, Parts
from .partition_files import NOW, PARTITION, values


@pytest.fixture
def parts() -> Parts:
    """Base offsets 10, 12, 14; the log ends at 16."""
    parts = Parts(10)
    parts.fill(3)
    assert parts.bases == [10, 12, 14]
    return parts


def read(parts: Parts, offset: int, max_bytes: int = 1 << 20, max_offset: int = 16, *, one: bool = True) -> list[int]:
    piece = parts.segments.read(offset, max_bytes, max_offset, 16, min_one_batch=one)
    return [offset for offset, _ in values(piece.read())]


def test_a_log_has_a_segment() -> None:
    with pytest.raises(ValueError, match="at least one segment"):
        LogSegments(LogDirectory(DiskStorage(), "/d"), FOLDER, PARTITION, TopicConfig(), [])


@pytest.mark.parametrize(("offset", "number"), [(0, -1), (9, -1), (10, 0), (11, 0), (12, 1), (14, 2), (99, 2)])
def test_floor(parts: Parts, offset: int, number: int) -> None:
    assert parts.segments.floor(offset) == number
    assert parts.segments.from_offset(offset) == list(parts.segments)[max(number, 0) :]


@pytest.mark.parametrize(
    ("start", "end", "bases"), [(0, 99, [10, 12, 14]), (11, 14, [10, 12]), (13, 13, [12]), (14, 14, []), (15, 16, [14])]
)
def test_between(parts: Parts, start: int, end: int, bases: list[int]) -> None:
    assert [segment.base_offset for segment in parts.segments.between(start, end)] == bases


def test_read_ends_with_its_segment(parts: Parts) -> None:
    assert read(parts, 10) == [10, 11]
    assert read(parts, 11) == [11]
    assert read(parts, 15) == [15]


def test_read_stops_below_the_maximal_offset(parts: Parts) -> None:
    assert read(parts, 10, max_offset=11) == [10]
    assert read(parts, 11, max_offset=11) == []
    assert read(parts, 10, max_offset=14) == [10, 11]


def test_read_returns_whole_batches(parts: Parts) -> None:
    size = parts.segments[0].size // 2
    assert read(parts, 10, size) == [10]
    assert read(parts, 10, 2 * size - 1) == [10]
    assert read(parts, 10, 1) == [10], "the first batch comes whole"
    assert read(parts, 10, 1, one=False) == []


def test_read_passes_over_a_compacted_segment(parts: Parts) -> None:
    emptied = parts.segments[1]
    emptied.cut(0)
    emptied.reset_indexes()
    assert read(parts, 12) == [14, 15]


def test_the_end_of_a_slice_by_the_index(parts: Parts) -> None:
    last = parts.segments.read(14, 1 << 20, 16, 16, min_one_batch=True)
    first = parts.segments.read(10, 1 << 20, 16, 16, min_one_batch=True)
    assert parts.segments.offset_after(last, 16) == 16
    assert parts.segments.offset_after(first, 16) == 12


def test_roll_at_the_same_offset_keeps_the_segment(parts: Parts) -> None:
    rolled = parts.segments.roll(16, NOW)
    assert parts.segments.roll(16, NOW) is rolled is parts.segments.active


def test_a_refused_roll_keeps_the_active_segment(parts: Parts) -> None:
    parts.disk.fail_at = "16.log"
    with pytest.raises(OSError, match="injected"):
        parts.segments.roll(16, NOW)
    assert parts.segments.active.base_offset == 14
    assert parts.bases == [10, 12, 14]


def test_deleted_files_wait_for_their_delay(parts: Parts) -> None:
    parts.segments.delete(parts.segments[0], NOW)
    assert parts.bases == [12, 14]
    assert parts.names(".deleted") == [f"{10:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex")]
    assert carried_out(parts.log_dir.removals(NOW + 999)) == 0
    carried_out(parts.log_dir.removals(NOW + 1000))
    assert parts.names(".deleted") == []


def test_a_refused_deletion_keeps_the_segment(parts: Parts) -> None:
    parts.disk.fail_at = ".timeindex.deleted"
    with pytest.raises(OSError, match="injected"):
        parts.segments.delete(parts.segments[0], NOW)
    assert parts.bases == [10, 12, 14]
    assert parts.names(".deleted") == []
    assert read(parts, 10) == [10, 11]


@pytest.mark.parametrize(("offset", "bases"), [(16, [10, 12, 14]), (15, [10, 12, 14]), (14, [10, 12, 14]), (11, [10])])
def test_truncate(parts: Parts, offset: int, bases: list[int]) -> None:
    parts.segments.truncate_to(offset, NOW)
    assert parts.bases == bases
    assert parts.segments.active.base_offset == bases[-1]


def test_start_over_keeps_the_old_segments_until_the_new_exists(parts: Parts) -> None:
    parts.disk.fail_at = "40.log"
    with pytest.raises(OSError, match="injected"):
        parts.segments.start_over_at(40, NOW)
    assert parts.bases == [10, 12, 14]
    parts.segments.start_over_at(40, NOW)
    assert parts.bases == [40]
    assert parts.segments.size_bytes == 0


def test_replace_keeps_the_order(parts: Parts) -> None:
    new = Segment(parts.disk, parts.log_dir.open_files, FOLDER, 10, suffix=".cleaned")
    parts.segments.replace([new], list(parts.segments[:2]))
    assert parts.bases == [10, 14]
    assert parts.segments[0] is new
    assert parts.segments.first_base_offset == 10
