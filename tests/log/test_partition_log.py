"""Appending, reading, rolling, truncating and deleting: one partition's log on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.log.removed import carried_out

from ottla.env.config import TopicConfig
from ottla.log.log_append import UnexpectedAppendOffsetError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import delete_old_segments
from ottla.log.validation import AppendOrigin
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.records import build_end_txn_marker, iterate_batches
from ottla.runtime.disk import DiskFile, DiskStorage

from .partition_files import NOW, append, batch, names, new_log, read_all, reload, values

SMALL = TopicConfig(segment_bytes=1 << 20, internal_segment_bytes=1000, index_interval_bytes=150)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return new_log(tmp_path)


@pytest.fixture
def small_log(tmp_path: Path) -> PartitionLog:
    """Ten or so batches per segment, an index entry every second batch."""
    return new_log(tmp_path, SMALL)


class CountingStorage(DiskStorage):
    """Notes each file that is opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.opened.append(path)
        return super().open(path, create=create)


class TestAppend:
    def test_offsets_are_consecutive_and_epochs_noted(self, log: PartitionLog) -> None:
        first = log.append_as_leader(batch(b"a", b"b"), leader_epoch=3, now_ms=NOW)
        second = log.append_as_leader(batch(b"c"), leader_epoch=4, now_ms=NOW)
        assert (first.first_offset, first.last_offset) == (0, 1)
        assert (second.first_offset, second.last_offset) == (2, 2)
        assert log.log_end_offset == 3
        assert log.epochs.entries == [(3, 0), (4, 2)]
        assert log.latest_epoch == 4
        assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]

    def test_log_append_time_is_answered(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, TopicConfig(message_timestamp_type="LogAppendTime"))
        result = log.append_as_leader(batch(b"a", timestamp=5), leader_epoch=0, now_ms=NOW)
        assert (result.log_append_time_ms, result.max_timestamp) == (NOW, NOW)
        found = log.offset_of_max_timestamp()
        assert found is not None
        assert (found.timestamp, found.offset) == (NOW, 0)

    def test_a_refused_batch_changes_nothing(self, log: PartitionLog) -> None:
        append(log, b"a")
        broken = batch(b"b")
        broken[-1] ^= 1
        size = log.size_bytes
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(broken, leader_epoch=7, now_ms=NOW)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (log.log_end_offset, log.size_bytes, log.latest_epoch) == (1, size, 0)

    def test_follower_keeps_offsets_and_epochs(self, log: PartitionLog) -> None:
        data = batch(b"a", base_offset=0, leader_epoch=1) + batch(b"b", b"c", base_offset=5, leader_epoch=2)
        result = log.append_as_follower(data + data[:30], now_ms=NOW)
        assert result is not None
        assert (result.first_offset, result.last_offset) == (0, 6)
        assert log.epochs.entries == [(1, 0), (2, 5)]
        assert read_all(log) == [(0, b"a"), (5, b"b"), (6, b"c")]
        assert values(log.read(2, 1000).read())[0][0] == 5

    def test_follower_refuses_what_it_has(self, log: PartitionLog) -> None:
        append(log, b"a")
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_as_follower(batch(b"b", base_offset=0, leader_epoch=0), now_ms=NOW)
        assert log.append_as_follower(b"", now_ms=NOW) is None

    def test_follower_stops_before_a_later_epoch(self, log: PartitionLog) -> None:
        data = batch(b"a", leader_epoch=1) + batch(b"b", base_offset=1, leader_epoch=2)
        result = log.append_as_follower(data, now_ms=NOW, max_leader_epoch=1)
        assert result is not None
        assert (result.last_offset, log.log_end_offset) == (0, 1)


def test_reading_on_asks_the_index_file_once_for_many_fetches(tmp_path: Path) -> None:
    storage = CountingStorage()
    log = new_log(tmp_path, TopicConfig(segment_bytes=1 << 20, index_interval_bytes=150), storage)
    for number in range(400):
        append(log, b"x" * 200, b"%d" % number)
    log.close()
    again = reload(log, clean=True, storage=storage)
    storage.opened.clear()
    assert [value for _, value in read_all(again, max_bytes=2_000)][1::2] == [b"%d" % number for number in range(400)]
    assert sum(path.endswith(".index") for path in storage.opened) <= 3  # its size, and the pieces that were kept


class TestRead:
    def test_outside_of_the_log(self, log: PartitionLog) -> None:
        append(log, b"a")
        assert log.read(1, 100).length == 0
        for offset in (-1, 2):
            with pytest.raises(KafkaError) as refused:
                log.read(offset, 100)
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_whole_batches_within_the_limit(self, log: PartitionLog) -> None:
        sizes = [len(batch(b"x" * length)) for length in (10, 20, 30)]
        for length in (10, 20, 30):
            append(log, b"x" * length)
        assert log.read(0, sizes[0] + sizes[1]).length == sizes[0] + sizes[1]
        assert log.read(0, sizes[0] + sizes[1] + 10).length == sizes[0] + sizes[1]
        assert log.read(1, sizes[1]).length == sizes[1]
        assert log.read(0, 5).length == sizes[0]
        assert log.read(0, 5, min_one_batch=False).length == 0

    def test_not_past_max_offset(self, log: PartitionLog) -> None:
        for value in (b"a", b"b", b"c"):
            append(log, value)
        assert values(log.read(0, 1000, max_offset=2).read()) == [(0, b"a"), (1, b"b")]
        assert log.read(2, 1000, max_offset=2).length == 0
        assert log.read(3, 1000, max_offset=2).length == 0

    def test_a_slice_survives_the_deletion_of_its_segment(self, small_log: PartitionLog) -> None:
        for number in range(30):
            append(small_log, b"%d" % number)
        piece = small_log.read(0, 500)
        small_log.advance_log_start_offset(25)
        assert delete_old_segments(small_log, NOW) > 0
        carried_out(small_log.log_dir.removals(NOW + 10**9))
        assert values(piece.read())[0] == (0, b"0")

    @pytest.mark.parametrize("max_bytes", [1, 100, 333, 100_000])
    def test_across_segments(self, small_log: PartitionLog, max_bytes: int) -> None:
        for number in range(100):
            append(small_log, b"v%d" % number, b"w%d" % number)
        assert len(small_log.segments) > 5
        expected = [(2 * n + i, (b"v%d", b"w%d")[i] % n) for n in range(100) for i in (0, 1)]
        assert read_all(small_log, max_bytes=max_bytes) == expected
        for start in (1, 57, 199):
            assert read_all(small_log, start, max_bytes) == expected[start:]

    def test_open_files_stay_within_their_bound(self, small_log: PartitionLog) -> None:
        small_log.log_dir.open_files.capacity = 3
        for number in range(100):
            append(small_log, b"v%d" % number)
        before = len(list(Path("/dev/fd").iterdir()))
        for offset in (5, 95, 50, 70, 20, 10, 80):
            assert read_all(small_log, offset)[0][0] == offset
        assert len(list(Path("/dev/fd").iterdir())) <= before + 3
        assert len(small_log.log_dir.open_files) <= 3


class TestRoll:
    def test_by_size(self, small_log: PartitionLog) -> None:
        for number in range(50):
            append(small_log, b"%d" % number)
        assert all(segment.size <= 1000 for segment in small_log.segments)
        assert len(names(small_log, ".snapshot")) == len(small_log.segments) - 1

    def test_by_time_of_the_records(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, TopicConfig(segment_ms=1000))
        append(log, b"a", timestamp=NOW)
        append(log, b"b", timestamp=NOW + 1000)
        assert len(log.segments) == 1
        append(log, b"c", timestamp=NOW + 1001)
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_by_full_index(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, TopicConfig(index_interval_bytes=0, segment_index_bytes=48))
        for number in range(12):
            append(log, b"%d" % number, timestamp=NOW + number)
        assert len(log.segments) > 2
        assert read_all(log) == [(number, b"%d" % number) for number in range(12)]

    def test_by_offsets_beyond_31_bits(self, log: PartitionLog) -> None:
        append(log, b"a")
        log.append_as_follower(batch(b"b", base_offset=(1 << 31) + 5, leader_epoch=0), now_ms=NOW)
        assert [segment.base_offset for segment in log.segments] == [0, (1 << 31) + 5]
        assert read_all(log, 1) == [((1 << 31) + 5, b"b")]


class TestTruncate:
    @pytest.mark.parametrize("offset", [0, 1, 37, 50, 98, 99])
    def test_drops_the_end(self, small_log: PartitionLog, offset: int) -> None:
        for number in range(100):
            append(small_log, b"%d" % number, leader_epoch=number // 10)
        assert small_log.truncate_to(offset, NOW)
        assert small_log.log_end_offset == small_log.high_watermark == offset
        assert read_all(small_log) == [(number, b"%d" % number) for number in range(offset)]
        assert small_log.latest_epoch == (offset - 1) // 10
        append(small_log, b"new", leader_epoch=20)
        assert read_all(small_log)[-1] == (offset, b"new")
        again = reload(small_log, clean=False)
        assert read_all(again) == read_all(small_log)
        assert again.epochs.entries == small_log.epochs.entries

    def test_at_the_end_only_drops_epochs(self, log: PartitionLog) -> None:
        append(log, b"a", leader_epoch=1)
        log.epochs.assign(5, 1)  # as Apache Kafka leaves it: an epoch without a batch
        assert not log.truncate_to(1, NOW)
        assert log.latest_epoch == 1

    def test_inside_a_batch_drops_it(self, log: PartitionLog) -> None:
        append(log, b"a")
        append(log, b"b", b"c", b"d")
        log.truncate_to(2, NOW)
        assert read_all(log) == [(0, b"a")]
        assert log.log_end_offset == 2

    def test_fully(self, small_log: PartitionLog) -> None:
        for number in range(50):
            append(small_log, b"%d" % number, producer_id=1, epoch=0, sequence=number)
        small_log.truncate_fully_and_start_at(1000, NOW)
        assert (small_log.log_start_offset, small_log.log_end_offset, small_log.recovery_point) == (1000, 1000, 1000)
        assert small_log.producers.active() == []
        assert append(small_log, b"x") == 1000
        again = reload(small_log, clean=False)
        assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)

    def test_a_flush_that_began_before_a_truncation_proves_nothing(self, log: PartitionLog) -> None:
        for number in range(10):
            append(log, b"%d" % number)
        plan = log.prepare_flush()
        assert plan is not None
        log.truncate_to(4, NOW)
        for number in range(10):
            append(log, b"%d" % number)
        plan.sync()
        log.flushed(plan, NOW)
        assert log.recovery_point <= 4


class TestDeletion:
    def test_delete_records_hides_and_then_deletes(self, small_log: PartitionLog) -> None:
        for number in range(100):
            append(small_log, b"%d" % number)
        with pytest.raises(KafkaError) as refused:
            small_log.advance_log_start_offset(101)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert small_log.advance_log_start_offset(55)
        assert not small_log.advance_log_start_offset(40)
        assert read_all(small_log)[0] == (55, b"55")
        with pytest.raises(KafkaError):
            small_log.read(54, 100)
        assert delete_old_segments(small_log, NOW) > 0
        assert small_log.segments[0].base_offset <= 55
        assert small_log.log_start_offset == 55

    def test_by_age_by_size_and_never_the_empty_active_segment(self, small_log: PartitionLog) -> None:
        for number in range(100):
            append(small_log, b"%d" % number, timestamp=NOW + number)
        small_log.config = SMALL.replace(retention_bytes=small_log.size_bytes - 1)
        assert delete_old_segments(small_log, NOW) == 0
        small_log.config = SMALL.replace(retention_bytes=2500)
        assert delete_old_segments(small_log, NOW) > 0
        assert 2500 <= small_log.size_bytes < 3500
        small_log.config = SMALL.replace(retention_ms=1000)
        oldest = small_log.segments[0].largest_timestamp
        assert delete_old_segments(small_log, oldest + 1000) == 0
        assert delete_old_segments(small_log, oldest + 1001) == 1
        delete_old_segments(small_log, NOW + 10_000)
        assert (small_log.size_bytes, small_log.log_start_offset, small_log.log_end_offset) == (0, 100, 100)
        assert delete_old_segments(small_log, NOW + 10**12) == 0
        assert append(small_log, b"next") == 100

    def test_not_past_the_high_watermark(self, small_log: PartitionLog) -> None:
        for number in range(100):
            append(small_log, b"%d" % number)
        small_log.offsets.high_watermark = 30
        delete_old_segments(small_log, NOW + 10**12)
        assert small_log.log_start_offset <= 30
        assert small_log.segments[0].base_offset <= 30

    def test_compact_only_topics_ignore_age(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, SMALL.replace(cleanup_policy=frozenset({"compact"})))
        for number in range(100):
            append(log, b"%d" % number)
        assert delete_old_segments(log, NOW + 10**12) == 0

    def test_files_wait_for_their_delay(self, small_log: PartitionLog) -> None:
        for number in range(50):
            append(small_log, b"%d" % number)
        delete_old_segments(small_log, NOW + 10**12)
        deleted = names(small_log, ".deleted")
        assert any(name.endswith(".log.deleted") for name in deleted)
        assert any(name.endswith(".snapshot.deleted") for name in deleted)
        carried_out(small_log.log_dir.removals(NOW + 10**12 + 59_999))
        assert names(small_log, ".deleted")
        carried_out(small_log.log_dir.removals(NOW + 10**12 + 60_000))
        assert not names(small_log, ".deleted")


class TestTimestamps:
    def test_first_record_at_or_after(self, small_log: PartitionLog) -> None:
        for number in range(100):
            append(small_log, b"a", b"b", timestamp=NOW + 10 * number)
        for wanted, offset in ((0, 0), (NOW, 0), (NOW + 1, 1), (NOW + 2, 2), (NOW + 495, 100), (NOW + 991, 199)):
            found = small_log.offset_for_timestamp(wanted)
            assert found is not None
            assert found.offset == offset
        assert small_log.offset_for_timestamp(NOW + 992) is None

    def test_not_below_the_log_start(self, small_log: PartitionLog) -> None:
        for number in range(20):
            append(small_log, b"a", timestamp=NOW + number)
        small_log.advance_log_start_offset(7)
        found = small_log.offset_for_timestamp(0)
        assert found is not None
        assert found.offset == 7

    def test_maximum_and_disorder(self, small_log: PartitionLog) -> None:
        assert small_log.offset_of_max_timestamp() is None
        for number, timestamp in enumerate([5, 900, 7, 899, 3] * 8):
            append(small_log, b"%d" % number, timestamp=NOW + timestamp)
        found = small_log.offset_of_max_timestamp()
        assert found is not None
        assert (found.timestamp, found.offset) == (NOW + 900, 1)
        found = small_log.offset_for_timestamp(NOW + 899)
        assert found is not None
        assert found.offset == 1


class TestTransactions:
    def marker(self, log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        data = build_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=NOW, producer_id=producer_id, producer_epoch=epoch
        )
        result = log.append_as_leader(data, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
        return result.first_offset

    def test_last_stable_offset_and_aborted_ranges(self, log: PartitionLog) -> None:
        append(log, b"plain")
        append(log, b"t1", producer_id=1, epoch=0, sequence=0, transactional=True)
        append(log, b"t2", producer_id=2, epoch=0, sequence=0, transactional=True)
        append(log, b"plain")
        assert (log.last_stable_offset, log.high_watermark) == (1, 4)
        assert self.marker(log, 1, commit=False) == 4
        assert log.last_stable_offset == 1
        log.advance_high_watermark(5)
        assert log.last_stable_offset == 2
        self.marker(log, 2, commit=True)
        assert log.last_stable_offset == 2
        log.advance_high_watermark(6)
        assert (log.last_stable_offset, log.offsets.first_unstable_offset) == (6, -1)
        assert [tuple(aborted) for aborted in log.aborted.between(0, 6)] == [(1, 1, 4, 2)]
        assert log.aborted.between(5, 6) == []
        assert log.aborted.between(0, 1) == []

    def test_a_truncation_opens_no_transaction_that_is_committed(self, log: PartitionLog) -> None:
        """The high watermark stays: on an idle partition nothing else would close it, and readers would wait for ever."""
        append(log, b"t", producer_id=1, epoch=0, sequence=0, transactional=True)
        self.marker(log, 1, commit=True)
        log.advance_high_watermark(2)
        log.append_as_leader(batch(b"not replicated"), leader_epoch=0, now_ms=NOW)
        assert (log.last_stable_offset, log.high_watermark) == (2, 2)
        log.truncate_to(2, NOW)
        assert (log.last_stable_offset, log.high_watermark, log.offsets.first_unstable_offset) == (2, 2, -1)

    @pytest.mark.parametrize("clean", [True, False])
    def test_open_transactions_survive_a_restart(self, small_log: PartitionLog, clean: bool) -> None:
        for number in range(40):
            append(small_log, b"x", producer_id=7, epoch=0, sequence=number, transactional=number >= 15)
        if clean:
            small_log.close()
        again = reload(small_log, clean=clean)
        again.advance_high_watermark(again.log_end_offset)
        assert again.last_stable_offset == small_log.last_stable_offset == 15
        self.marker(again, 7, commit=False)
        again.advance_high_watermark(again.log_end_offset)
        assert again.last_stable_offset == 41
        assert [tuple(aborted) for aborted in again.aborted.between(20, 30)] == [(7, 15, 40, 41)]
        again.truncate_to(30, NOW)
        again.advance_high_watermark(30)
        assert again.last_stable_offset == 15
        assert again.aborted.between(0, 50) == []

    def test_a_fetch_lists_the_aborted_transactions_of_its_range(self, small_log: PartitionLog) -> None:
        """By the index, or the end of the segment: at least those in the slice, and not a whole backlog."""
        for number in range(60):
            append(small_log, b"x", producer_id=7, epoch=0, sequence=number, transactional=True)
            self.marker(small_log, 7, commit=False)
        small_log.advance_high_watermark(small_log.log_end_offset)
        segments = len(small_log.segments)
        assert segments > 5
        for start in range(0, 120, 7):
            found = small_log.read(start, 200)
            listed = [aborted.first_offset for aborted in small_log.aborted.within(found, start)]
            offsets = [header.base_offset for _, header in iterate_batches(found.read()) if not header.is_control]
            assert set(offsets) <= set(listed)
            assert len(listed) <= 2 * 60 // segments, "more than a segment's worth"
            assert listed == sorted(listed)

    def test_without_aborted_transactions_the_disk_is_asked_once(
        self, small_log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(60):
            append(small_log, b"x")
        small_log.close()
        again = reload(small_log, clean=True)
        asked: list[str] = []
        exists = DiskStorage.exists

        def counted(storage: DiskStorage, path: str) -> bool:
            asked.append(path)
            return exists(storage, path)

        monkeypatch.setattr(DiskStorage, "exists", counted)
        for _ in range(3):
            assert again.aborted.within(again.read(0, 200), 0) == []
        assert len(asked) == len(set(asked)) == len(again.segments)
        append(again, b"x", producer_id=7, epoch=0, sequence=0, transactional=True)
        self.marker(again, 7, commit=False)
        assert [txn.first_offset for txn in again.aborted.within(again.read(60, 200), 60)] == [60]

    def test_plain_write_inside_a_transaction_is_refused(self, log: PartitionLog) -> None:
        append(log, b"x", producer_id=1, epoch=0, sequence=0, transactional=True)
        with pytest.raises(KafkaError) as refused:
            append(log, b"y", producer_id=1, epoch=0, sequence=1)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE

    def test_verification_guard(self, log: PartitionLog) -> None:
        log.producers.verification_enabled = True
        data = batch(b"x", producer_id=1, epoch=0, sequence=0, transactional=True)
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        verification_guard = log.producers.start_verification(1, 0, 0, NOW)
        assert verification_guard is not None
        assert log.producers.start_verification(1, 3, 0, NOW) is verification_guard
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW, verification_guard=verification_guard)
        assert log.producers.start_verification(1, 1, 0, NOW) is None


class TestTopicId:
    def test_written_once(self, log: PartitionLog) -> None:
        mine, other = Uuid(b"a" * 16), Uuid(b"b" * 16)
        log.assign_topic_id(mine)
        log.assign_topic_id(mine)
        with pytest.raises(KafkaError) as refused:
            log.assign_topic_id(other)
        assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        assert reload(log, clean=False).topic_id == mine


class TestEpochs:
    def test_end_offset_for_epoch(self, log: PartitionLog) -> None:
        assert log.end_offset_for_epoch(0) is None
        for epoch, count in ((2, 3), (5, 2), (6, 1)):
            for _ in range(count):
                append(log, b"x", leader_epoch=epoch)
        assert log.end_offset_for_epoch(1) == (1, 0)
        assert log.end_offset_for_epoch(2) == (2, 3)
        assert log.end_offset_for_epoch(4) == (2, 3)
        assert log.end_offset_for_epoch(5) == (5, 5)
        assert log.end_offset_for_epoch(6) == (6, 6)
        assert log.end_offset_for_epoch(7) is None
        assert log.end_offset_for_epoch(-1) is None
