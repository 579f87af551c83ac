"""Bulk decoding gives what the record walker gives, for any records, and refuses what it refuses."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import KafkaError
from ottla.protocol.records import LOG_APPEND_TIME, SimpleRecord, build_batch, iterate_records, parse_header
from ottla.tables.decode import Chunk, decode_chunk

SMALL = st.binary(max_size=40) | st.none()
HEADERS = st.lists(st.tuples(st.text(max_size=8), SMALL), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(SimpleRecord, st.integers(0, 2**42), SMALL, st.binary(max_size=300) | st.none(), HEADERS),
    min_size=1,
    max_size=30,
)


def chunk_of(*batches: bytearray) -> Chunk:
    chunk = Chunk()
    for batch in batches:
        chunk.add(batch, 0, parse_header(batch, 0))
    return chunk


def as_rows(batch: bytearray) -> list[tuple]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in iterate_records(batch)]


def decoded_rows(chunk: Chunk, start: int = 0, end: int = 2**62) -> list[tuple]:
    rows = decode_chunk(chunk, "t", 7, start, end, with_headers=True)
    rows.validate(full=True)
    return [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"] or ()),
        )
        for row in rows.to_pylist()
    ]


@given(RECORDS, RECORDS, st.sampled_from([0, 1, 2, 3, 4]))
def test_it_decodes_what_the_walker_decodes(first, second, compression):
    one = build_batch(first, base_offset=100, compression=compression)
    two = build_batch(second, base_offset=500, compression=0)
    assert decoded_rows(chunk_of(one, two)) == as_rows(one) + as_rows(two)


def test_offsets_outside_the_range_are_left_out():
    batch = build_batch([SimpleRecord(n, b"k", b"v") for n in range(100)], base_offset=10)
    assert [row[0] for row in decoded_rows(chunk_of(batch), 50, 60)] == list(range(50, 60))


def test_log_append_time_is_the_batch_time():
    batch = build_batch(
        [SimpleRecord(n, None, b"v") for n in range(3)], timestamp_type=LOG_APPEND_TIME, log_append_time=777
    )
    rows = decode_chunk(chunk_of(batch), "t", 0, 0, 10)
    assert rows.column("timestampType").to_pylist() == [1, 1, 1]
    assert {round(one.timestamp() * 1000) for one in rows.column("timestamp").to_pylist()} == {777}


@pytest.mark.parametrize("size", [200, 201])
def test_records_of_one_size_and_of_many_sizes(size):
    batch = build_batch([SimpleRecord(5, b"key", bytes(size if n % 2 else 200)) for n in range(64)])
    assert decoded_rows(chunk_of(batch)) == as_rows(batch)


def test_damaged_records_are_refused_or_equal():
    """A flipped byte inside the records never crashes and never reads outside: INVALID_RECORD, or other values."""
    draw = random.Random(4711)
    good = build_batch([SimpleRecord(n, b"key%d" % n, bytes(n), (("h", b"x"),)) for n in range(40)])
    refused = 0
    for _ in range(3000):
        bad = bytearray(good)
        bad[draw.randrange(61, len(bad))] ^= 1 << draw.randrange(8)
        try:
            decode_chunk(chunk_of(bad), "t", 0, 0, 2**62, with_headers=True).validate(full=True)
        except KafkaError:
            refused += 1
    assert refused > 300


RUNS = st.lists(
    st.tuples(st.sampled_from([0, 3, 4, 10]), st.sampled_from([0, 36, 100, 164, 228]), st.integers(1, 80)),
    min_size=1,
    max_size=6,
)


@given(RUNS)
def test_runs_of_equal_records_that_change_into_others(runs):
    """Sizes 64 apart differ in the second byte of their length only; a longer key moves values of one length."""
    sizes = [(key, value) for key, value, count in runs for _ in range(count)]
    batch = build_batch(
        [SimpleRecord(n, bytes([n % 251]) * key, bytes([n % 253]) * value) for n, (key, value) in enumerate(sizes)]
    )
    assert decoded_rows(chunk_of(batch)) == as_rows(batch)
