"""Compaction: the latest record of every key stays, at its offset; everything else goes when its time has come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.kafka_tools import DumpLogSegments, Result

from ottla.log.cleaner import Cleaner
from ottla.log.compaction import compact
from ottla.log.compaction_keys import BYTES_PER_KEY, OffsetMap
from ottla.log.log_store import LogStore
from ottla.protocol.records import SimpleRecord, build_batch, iterate_batches, parse_header, set_attributes
from ottla.runtime.clock import SystemRandom
from ottla.runtime.disk import DiskStorage

from .compaction_history import (
    COMPACT,
    DAY,
    CleanerStats,
    Crash,
    CrashingStorage,
    History,
    OneLog,
    finished,
    latest,
    read_batches,
    read_records,
)
from .partition_files import PARTITION, reload


def offsets(history: History) -> list[int]:
    return [record.offset for record in read_records(history.log)]


def test_before_and_after(tmp_path: Path) -> None:
    """The picture that everyone knows: nine records of six keys, and what is left of them."""
    history = History(tmp_path)
    keys = ["K1", "K2", "K1", "K3", "K4", "K5", "K5", "K2", "K6"]
    for number, key in enumerate(keys):
        assert history.append((key.encode(), b"V%d" % (number + 2))) == number
    history.roll()
    history.compact()
    assert [(r.offset, r.key, r.value) for r in read_records(history.log)] == [
        (2, b"K1", b"V4"),
        (3, b"K3", b"V5"),
        (4, b"K4", b"V6"),
        (6, b"K5", b"V8"),
        (7, b"K2", b"V9"),
        (8, b"K6", b"V10"),
    ]
    assert history.log.log_end_offset == 9
    assert history.log.log_start_offset == 0


def test_within_one_batch(tmp_path: Path) -> None:
    history = History(tmp_path)
    for codec in range(5):
        history.append((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c%d" % codec, b"4"), codec=codec)
    history.roll()
    history.compact()
    assert offsets(history) == [3, 7, 11, 15, 17, 18, 19]
    for header, records in read_batches(history.log):
        assert header.last_offset_delta == 3
        assert header.record_count == len(records)
        assert {record.timestamp for record in records} <= {history.written[record.offset][2] for record in records}


def test_untouched_batches_are_copied_as_they_stand(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(20):
        history.append(
            (b"k%d" % number, b"v" * 50), (b"other %d" % number, None if number == 7 else b""), codec=number % 5
        )
    history.roll()
    before = history.log.read(0, 1 << 20).read()
    history.compact()
    after = history.log.read(0, 1 << 20).read()
    found = {header.base_offset: after[at : at + header.size] for at, header in iterate_batches(after)}
    changed = [h.base_offset for at, h in iterate_batches(before) if found[h.base_offset] != before[at : at + h.size]]
    assert changed == [14]
    assert parse_header(found[14], 0).has_delete_horizon
    assert len(read_records(history.log)) == 40


def test_the_active_segment_and_open_transactions_wait(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append((b"a", b"1"))
    assert history.compact() is None
    history.roll()
    history.append((b"a", b"2"), producer_id=5, transactional=True)
    history.roll()
    history.append((b"a", b"3"))
    history.roll()
    stats = history.compact()
    assert stats is not None
    assert stats.end_offset == 1
    assert offsets(history) == [0, 1, 2]
    history.end(5, commit=True)
    history.roll()
    assert history.compact() is not None
    assert offsets(history) == [2]
    assert latest(read_records(history.log, committed=True)) == {b"a": b"3"}


def test_tombstones_go_after_their_time(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append((b"a", b"1"), (b"b", b"2"))
    history.append((b"a", None))
    history.append((b"z", b"0"))
    history.roll()
    history.compact()
    assert offsets(history) == [1, 2, 3]
    tombstone = next(header for header, _ in read_batches(history.log) if header.base_offset == 2)
    assert tombstone.delete_horizon_ms == history.clock.now_ms + DAY
    assert read_records(history.log)[1].timestamp == history.written[2][2]

    def again(after_ms: int) -> list[int]:
        history.clock.now_ms += after_ms
        history.append((b"z", b"%d" % after_ms))
        history.roll()
        history.compact()
        return offsets(history)

    assert again(DAY - 1) == [1, 2, 4]
    assert again(1) == [1, 5]


def test_aborted_records_go_and_markers_follow(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append((b"a", b"old"))
    history.append((b"a", b"aborted"), producer_id=5, transactional=True)
    history.append((b"b", b"committed"), producer_id=6, transactional=True)
    history.end(5, commit=False)
    history.end(6, commit=True)
    history.append((b"c", b"more"), producer_id=5)
    history.append((b"b", b"newer"), producer_id=6)
    history.roll()
    cleaner = history.cleaner()
    history.compact(cleaner)
    assert [(r.key, r.value) for r in read_records(history.log)] == [(b"a", b"old"), (b"c", b"more"), (b"b", b"newer")]
    assert [h.base_offset for h, _ in read_batches(history.log) if h.is_control] == [3, 4]
    assert len(history.log.segments[0].aborted_transactions()) == 1

    def again(after_ms: int) -> list[tuple[int, bool]]:
        history.clock.now_ms += after_ms
        history.append((b"z", b"%d" % after_ms))
        history.roll()
        history.compact(cleaner)
        return [(h.base_offset, h.has_delete_horizon) for h, _ in read_batches(history.log) if h.is_control]

    # The first pass dropped the batches and kept the markers; the second finds no batches and sets the horizon.
    assert again(1) == [(3, True), (4, True)]
    assert history.log.segments[0].aborted_transactions() == []
    assert again(DAY - 1) == [(3, True), (4, True)]
    assert again(1) == []
    assert latest(read_records(history.log, committed=True)) == history.live


def test_a_producers_last_sequence_survives(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append((b"a", b"1"), (b"b", b"1"), producer_id=5)
    history.append((b"a", b"2"), (b"b", b"2"), producer_id=5)
    history.append((b"a", b"3"), (b"b", b"3"))
    history.roll()
    history.compact()
    headers = [header for header, _ in read_batches(history.log)]
    assert [(h.base_offset, h.last_offset, h.record_count) for h in headers] == [(2, 3, 0), (4, 5, 2)]
    assert (headers[0].producer_id, headers[0].base_sequence, headers[0].last_sequence) == (5, 2, 3)
    for path in Path(history.log.directory).glob("*.snapshot"):
        path.unlink()
    again = reload(history.log, clean=False)
    assert again.producers.active()[0].last_sequence == 3


def test_the_end_of_the_round_survives(tmp_path: Path) -> None:
    """The last batch below the active segment was aborted: an empty one keeps its place."""
    history = History(tmp_path)
    history.append((b"a", b"1"))
    history.append((b"b", b"1"), producer_id=5, transactional=True)
    history.roll()
    history.end(5, commit=False)
    history.append((b"a", b"3"), producer_id=5)
    history.compact()
    assert [(h.base_offset, h.record_count) for h, _ in read_batches(history.log)] == [(0, 1), (1, 0), (2, 1), (3, 1)]


def test_tombstones_that_stay_for_ever(tmp_path: Path) -> None:
    """delete.retention.ms may be Long.MAX_VALUE: its sum with a time does not fit into a batch's header."""
    history = History(tmp_path, COMPACT.replace(delete_retention_ms=2**63 - 1))
    history.append((b"a", b"1"), (b"b", b"2"))
    history.append((b"a", None))
    history.roll()
    history.compact()
    history.clock.now_ms += 100 * 365 * DAY
    history.append((b"c", b"3"))
    history.roll()
    history.compact()
    assert [(r.offset, r.key, r.value, r.timestamp) for r in read_records(history.log)] == [
        (offset, *history.written[offset]) for offset in (1, 2, 3)
    ]


def test_a_tombstone_outlives_what_the_map_could_not_hold(tmp_path: Path) -> None:
    """Its time has come, but the round does not reach it while the value that it deletes is still there."""
    history = History(tmp_path)
    history.append((b"w1", b""), (b"w2", b""))
    history.append((b"k", b"v"), (b"y", b""), (b"z", b""))
    history.append((b"k", None))
    history.roll()
    cleaner = history.cleaner(dedupe_buffer_bytes=2 * BYTES_PER_KEY, load_factor=1.0)
    ends = []
    for _ in range(3):
        stats = history.compact(cleaner)
        assert stats is not None
        ends.append(stats.end_offset)
        assert latest(read_records(history.log)) == history.live
        history.clock.now_ms += DAY
    assert ends == [2, 4, 6]
    assert offsets(history) == [0, 1, 3, 4]


def test_only_whole_segments_below_the_bound(tmp_path: Path) -> None:
    history = History(tmp_path)
    for _ in range(2):
        history.append((b"a", b"1"))
        history.append((b"a", b"2"))
        history.roll()
    untouched = history.log.segments[1]
    finished(compact(history.log, 0, 3, clock=history.clock, memory_bytes=1 << 20))
    assert history.log.segments[1] is untouched
    assert offsets(history) == [2, 3]


def test_small_memory_takes_several_rounds(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(300):
        history.append((b"key %d" % (number % 60), b"%d" % number), (b"twice", b"%d" % number))
        if number % 50 == 49:
            history.roll()
    cleaner = history.cleaner(dedupe_buffer_bytes=20 * BYTES_PER_KEY, load_factor=1.0)
    ends: list[int] = []
    while (stats := history.compact(cleaner)) is not None:
        assert stats.keys <= 20
        assert latest(read_records(history.log)) == history.live
        ends.append(stats.end_offset)
    assert ends == sorted(set(ends))
    assert ends[-1] == 600
    # One last round over a map that holds everything shows that the small ones left nothing wrong behind.
    history.append((b"twice", b"end"))
    history.roll()
    history.compact(Cleaner(OneLog(history.log), history.clock))
    assert latest(read_records(history.log)) == history.live


def test_the_map_is_bounded() -> None:
    offset_map = OffsetMap(3 * BYTES_PER_KEY)
    assert [offset_map.put(b"%d" % n, n) for n in range(5)] == [True, True, True, False, False]
    assert offset_map.put(b"1", 9)
    assert (offset_map.get(b"1"), offset_map.get(b"4"), len(offset_map)) == (9, -1, 3)
    long = OffsetMap(1 << 20)
    long.put(b"x" * 1000, 1)
    assert long.get(b"x" * 1000) == 1
    assert long.get(b"x" * 999) == -1
    assert max(map(len, long.offsets)) == 17


def test_segments_grow_together(tmp_path: Path) -> None:
    history = History(tmp_path, COMPACT.replace(internal_segment_bytes=2000))
    for number in range(200):
        history.append((b"key %d" % (number % 10), b"v" * 60))
    assert len(history.log.segments) > 10
    # Neighbours are put together by the size that they have before a pass, as in Kafka: the second one finds small ones.
    history.compact()
    history.roll()
    history.compact()
    assert len(history.log.segments) <= 3
    assert all(segment.size <= 2000 for segment in history.log.segments)
    assert latest(read_records(history.log)) == history.live


def test_produce_and_fetch_go_on_meanwhile(tmp_path: Path) -> None:
    """Between two slices the log is written and read; no slice is longer than a few looks at the clock."""
    history = History(tmp_path, COMPACT.replace(internal_segment_bytes=4000))
    for number in range(300):
        history.append((b"key %d" % (number % 40), b"v%d" % number))
    steps = history.cleaner().clean_next()
    breaths = 0
    for _ in steps:
        breaths += 1
        history.append((b"key %d" % (breaths % 50), b"meanwhile %d" % breaths))
        assert latest(read_records(history.log)) == history.live
    assert breaths > 20


@pytest.mark.parametrize("stop", range(1, 60, 4))
def test_the_log_may_change_meanwhile(tmp_path: Path, stop: int) -> None:
    """Retention takes two segments away in the middle of a pass: it ends, or goes on with what is left."""
    history = History(tmp_path, COMPACT.replace(internal_segment_bytes=1000))
    for number in range(100):
        history.append((b"key %d" % (number % 40), b"v%d" % number))
    steps = history.cleaner().clean_next()
    for _ in range(stop):
        next(steps, None)
    history.log.advance_log_start_offset(history.log.segments[2].base_offset)
    history.log.delete_segments(list(history.log.segments[:2]), history.clock.now_ms)
    expected = latest(read_records(history.log))
    finished(steps)
    assert latest(read_records(history.log)) == expected
    assert not list(Path(history.log.directory).glob("*.cleaned"))


def test_what_is_exchanged_is_on_the_disk_and_still_wanted(tmp_path: Path) -> None:
    storage = CrashingStorage()
    history = crashing_history(tmp_path, storage)
    steps = history.cleaner().clean_next()
    syncs = 0
    for sync in steps:
        if sync is not None:
            assert [path for path in storage.unsynced if path.endswith(".cleaned")]
            sync()
            assert not [path for path in storage.unsynced if path.endswith(".cleaned")]
            syncs += 1
            if syncs == 3:
                break
    gone = [segment.base_offset for segment in history.log.segments[:4]]
    history.log.delete_segments(list(history.log.segments[:4]), history.clock.now_ms)
    assert finished(steps) is None
    assert not {segment.base_offset for segment in history.log.segments} & set(gone)
    assert not list(Path(history.log.directory).glob("*.cleaned"))


def test_an_abandoned_pass_leaves_nothing(tmp_path: Path) -> None:
    history = History(tmp_path)
    for number in range(100):
        history.append((b"key %d" % (number % 40), b"v%d" % number))
    history.roll()
    steps = history.cleaner().clean_next()
    while not list(Path(history.log.directory).glob("*.cleaned")):
        next(steps)
    steps.close()
    assert not list(Path(history.log.directory).glob("*.cleaned"))
    assert len(read_records(history.log)) == 100


def crashing_history(path: Path, storage: CrashingStorage) -> History:
    history = History(path, COMPACT.replace(internal_segment_bytes=600), storage)
    for number in range(20):
        history.append((b"key %d" % (number % 7), b"v%d" % number if number % 5 else None), codec=number % 5)
        if number % 8 == 3:
            history.append((b"key %d" % (number % 7), b"aborted"), producer_id=5, transactional=True)
            history.end(5, commit=number % 16 == 3)
    history.log.flush(history.clock.now_ms)
    storage.unsynced.clear()
    return history


def test_a_crash_at_every_change(tmp_path: Path) -> None:
    """Whatever the machine was doing when it stopped: the log loads, and no key has lost its latest value."""
    rounds = 0
    while True:
        storage = CrashingStorage()
        history = crashing_history(tmp_path / str(rounds), storage)
        end = history.log.log_end_offset
        storage.countdown = rounds
        done = False
        try:
            finished(history.cleaner().clean_next())
            done = True
        except Crash:
            storage.lose_unsynced()
        again = reload(history.log, clean=False, recovery_point=end, storage=CrashingStorage())
        again.advance_high_watermark(again.log_end_offset)
        assert again.log_end_offset == end
        assert latest(read_records(again, committed=True)) == history.live, rounds
        found = read_records(again)
        assert [r.offset for r in found] == sorted({r.offset for r in found})
        assert all(history.written[r.offset] == (r.key, r.value, r.timestamp) for r in found)
        assert not [p.name for p in Path(again.directory).iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")]
        history.log = again
        history.compact()
        assert latest(read_records(again, committed=True)) == history.live
        if done:
            break
        rounds += 1
    assert rounds > 50


def test_checkpoints(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append((b"a", b"1"))
    history.roll()
    assert history.compact() is not None
    path = tmp_path / "cleaner-offset-checkpoint"
    assert path.read_text() == f"0\n1\n{PARTITION.topic} 0 1\n"
    assert history.compact() is None
    history.log.offsets.cleaned_up_to = 99  # of no record of this log
    cleaner = history.cleaner()
    assert cleaner.first_dirty_offset(history.log) == 0
    history.append((b"a", b"2"))
    history.roll()
    history.compact(cleaner)
    assert path.read_text() == f"0\n1\n{PARTITION.topic} 0 2\n"


@pytest.mark.parametrize(
    ("content", "first_dirty"),
    [("0\n1\norders 0 1\n", 1), ("nonsense", 0), ("", 0), ("0\n2\norders 0 99\ngone 3 7\n", 0)],
)
def test_a_start_reads_the_checkpoint_and_drops_what_cannot_be_true(
    tmp_path: Path, content: str, first_dirty: int
) -> None:
    history = History(tmp_path)
    history.append((b"a", b"1"))
    history.roll()
    history.append((b"a", b"2"))
    history.roll()
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_text(content)
    store = LogStore(DiskStorage(), SystemRandom(), [str(tmp_path)])
    store.open_directories()
    store.load(lambda _topic: COMPACT, history.clock.now_ms)
    log = store.get(PARTITION)
    assert log is not None
    assert Cleaner(store, history.clock).first_dirty_offset(log) == first_dirty
    if "99" in content:
        # It would count again once the log has grown past it.
        assert path.read_text() == "0\n0\n"
    store.abandon()


def test_when_a_log_is_worth_it(tmp_path: Path) -> None:
    history = History(tmp_path, COMPACT.replace(min_cleanable_dirty_ratio=0.5))
    history.append((b"a", b"x" * 1000))
    history.roll()
    cleaner = history.cleaner()
    assert cleaner.to_clean(history.log, history.clock.now_ms).cleanable_ratio == 1.0
    assert history.compact(cleaner) is not None
    history.append((b"b", b"x" * 400))
    history.roll()
    assert history.compact(cleaner) is None
    history.log.config = history.log.config.replace(max_compaction_lag_ms=DAY)
    history.clock.now_ms += DAY
    assert history.compact(cleaner) is None
    history.clock.now_ms += 1
    assert history.compact(cleaner) is not None
    history.log.config = history.log.config.replace(max_compaction_lag_ms=DAY * 10, min_compaction_lag_ms=DAY)
    history.append((b"b", b"x" * 4000))
    history.roll()
    history.clock.now_ms += DAY - 1
    assert history.compact(cleaner) is None
    history.clock.now_ms += 1
    assert history.compact(cleaner) is not None
    history.log.config = history.log.config.replace(cleanup_policy=frozenset({"delete"}))
    history.append((b"b", b"x" * 4000))
    history.roll()
    history.clock.now_ms += DAY * 2
    assert history.compact(cleaner) is None


def test_the_dirtiest_first(tmp_path: Path) -> None:
    dirty, clean = History(tmp_path / "dirty"), History(tmp_path / "clean")
    for history in (clean, dirty):
        history.append((b"a", b"x" * 100))
        history.roll()
    clean.compact()
    clean.append((b"a", b"x"))
    clean.roll()

    class Both:
        def online_logs(self) -> list[object]:
            return [clean.log, dirty.log]

    chosen = Cleaner(Both(), clean.clock).choose()  # type: ignore[arg-type]
    assert chosen is not None
    assert chosen.log is dirty.log


def test_unreadable_data_is_left_alone(tmp_path: Path) -> None:
    """Garbage that was taken in unseen: the log keeps it, and the cleaner goes on with others."""
    history = History(tmp_path, COMPACT.replace(cleanup_policy=frozenset({"delete"})))
    data = build_batch([SimpleRecord(history.clock.now_ms, b"k", b"v")])
    set_attributes(data, 0, 1)
    history.log.append_as_leader(data, leader_epoch=0, now_ms=history.clock.now_ms)
    history.log.advance_high_watermark(1)
    history.roll()
    history.log.config = COMPACT
    cleaner = history.cleaner()
    assert history.compact(cleaner) is None
    assert cleaner.choose() is None
    assert history.log.uncleanable
    assert history.log.read(0, 1000).read()


@pytest.mark.usefixtures("requires_apache_kafka")
def test_kafka_reads_the_result(tmp_path: Path, kafka_tool: Callable[..., Result]) -> None:
    history = crashing_history(tmp_path, CrashingStorage())
    history.roll()
    stats = history.compact()
    assert isinstance(stats, CleanerStats)
    history.log.close()
    logs = sorted(Path(history.log.directory).glob("*.log"))
    others = [
        path for kind in ("index", "timeindex", "txnindex") for path in Path(history.log.directory).glob(f"*.{kind}")
    ]
    said = kafka_tool(
        DumpLogSegments,
        "--deep-iteration",
        "--print-data-log",
        "--files",
        ",".join(map(str, [*logs, *sorted(others)])),
    )
    text = said.stdout
    assert said.returncode == 0, said
    assert "isvalid: false" not in text
    assert "mismatch" not in text.lower()
    dumped = [line for line in text.splitlines() if line.startswith("| offset:")]
    kept = read_records(reload(history.log, clean=True))
    assert len([line for line in dumped if "endTxnMarker" not in line]) == len(kept)
