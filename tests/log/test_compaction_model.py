"""Random histories, compacted again and again: a table built from the log is always the one that was written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.compaction_keys import BYTES_PER_KEY

from .compaction_history import COMPACT, DAY, History, latest, read_batches, read_records
from .partition_files import reload

keys = st.integers(0, 8).map(lambda n: b"key %d" % n if n else b"a key that is longer than sixteen bytes")
pairs = st.tuples(keys, st.none() | st.integers(0, 999).map(lambda n: b"%d" % n))
some_pairs = st.lists(pairs, min_size=1, max_size=6)
producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("append"), some_pairs, st.integers(0, 4)),
    st.tuples(st.just("idempotent"), some_pairs, producers),
    st.tuples(st.just("transactional"), some_pairs, producers),
    st.tuples(st.just("commit"), producers),
    st.tuples(st.just("abort"), producers),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("wait"), st.sampled_from([1, DAY // 2, DAY])),
)


def apply(history: History, step: tuple) -> None:  # type: ignore[type-arg]
    match step:
        case ("append", pairs, codec):
            history.append(*pairs, codec=codec)
        case ("idempotent", pairs, producer):
            if producer not in history.open:
                history.append(*pairs, producer_id=producer)
        case ("transactional", pairs, producer):
            history.append(*pairs, producer_id=producer, transactional=True)
        case ("commit" | "abort" as end, producer):
            if producer in history.open:
                history.end(producer, commit=end == "commit")
        case ("roll",):
            history.roll()
        case ("wait", time_ms):
            history.clock.now_ms += time_ms


def check(history: History) -> None:
    log = history.log
    found = read_records(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert all(history.written[r.offset] == (r.key, r.value, r.timestamp) for r in found)
    # What read_committed sees is a table of everything that was committed, but for transactions behind an open one.
    if not history.open:
        assert latest(read_records(log, committed=True)) == history.live
    bases = [header.base_offset for header, _ in read_batches(log)]
    assert bases == sorted(set(bases))


@settings(max_examples=150)
@given(st.lists(steps, max_size=60), st.sampled_from([400, 4000]), st.sampled_from([2, 5, 1000]))
def test_histories(history_steps: list[tuple], segment_bytes: int, map_keys: int) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), COMPACT.replace(internal_segment_bytes=segment_bytes))
        cleaner = history.cleaner(dedupe_buffer_bytes=map_keys * BYTES_PER_KEY, load_factor=1.0)
        for step in history_steps:
            apply(history, step)
            if step[0] == "compact":
                end = history.log.log_end_offset
                history.compact(cleaner)
                assert history.log.log_end_offset == end
                check(history)
        for producer in list(history.open):
            history.end(producer, commit=producer % 2 == 0)
        history.roll()
        while history.compact(cleaner) is not None:
            check(history)
        check(history)
        if map_keys == 1000:
            remaining = [record.key for record in read_records(history.log)]
            assert len(remaining) == len(set(remaining))
        producers = {p.producer_id: p.last_sequence for p in history.log.producers.active()}
        for clean in (True, False):
            if clean:
                history.log.flush(history.clock.now_ms)
                history.log.close()
            else:
                for path in Path(history.log.directory).glob("*.snapshot"):
                    path.unlink()
            again = reload(history.log, clean=clean)
            assert again.log_end_offset == history.log.log_end_offset
            assert {p.producer_id: p.last_sequence for p in again.producers.active()} == producers
            again.advance_high_watermark(again.log_end_offset)
            assert read_records(again, committed=True) == read_records(history.log, committed=True)
