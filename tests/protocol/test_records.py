"""Record batches: golden bytes, agreement with aiokafka and kafka-python, patches in place, damage."""

from __future__ import annotations

import contextlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.records import (
    ControlType,
    Record,
    SimpleRecord,
    assign_offset,
    batch_payload,
    build_batch,
    build_end_txn_marker,
    crc_matches,
    empty_batch,
    iterate_batches,
    iterate_records,
    next_spans,
    parse_control_key,
    parse_end_txn_marker,
    parse_header,
    read_varint,
    record_spans,
    set_attributes,
    set_max_timestamp,
    write_varint,
)

T = 1_700_000_000_000
ONE = SimpleRecord(T, b"k", b"v")

header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
simple_records = st.builds(
    SimpleRecord,
    st.integers(0, 1 << 45),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)
batches_of_records = st.lists(simple_records, min_size=1, max_size=20)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(value: int) -> None:
    out = bytearray(b"x")
    write_varint(out, value)
    assert read_varint(bytes(out), 1) == (value, len(out))


def test_a_varint_ends() -> None:
    with pytest.raises(KafkaError):
        read_varint(b"\xff" * 20, 0)


@given(batches_of_records, st.integers(0, 4), st.integers(0, 1 << 40))
def test_round_trip(records: list[SimpleRecord], codec: int, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec, leader_epoch=3)
    header = parse_header(batch, 0)
    assert (header.size, header.base_offset, header.leader_epoch) == (len(batch), base_offset, 3)
    assert (header.record_count, header.next_offset) == (len(records), base_offset + len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert crc_matches(batch, 0, len(batch))
    assert list(iterate_records(batch)) == [
        Record(base_offset + i, record.timestamp, record.key, record.value, record.headers)
        for i, record in enumerate(records)
    ]


@given(batches_of_records, st.integers(1, 7))
def test_spans_are_the_records(records: list[SimpleRecord], step: int) -> None:
    batch = build_batch(records)
    payload = bytes(batch_payload(batch, 0, parse_header(batch, 0)))
    spans = record_spans(payload, len(records))
    assert b"".join(payload[span[0] : span[1]] for span in spans) == payload
    for i, (span, record) in enumerate(zip(spans, records, strict=True)):
        assert span[2] == i
        assert records[0].timestamp + span[3] == record.timestamp
        assert (payload[span[4] : span[5]] if span[4] >= 0 else None) == record.key
        assert span[6] == (record.value is None)
    stepped, pos = [], 0
    for start in range(0, len(records), step):
        some, pos = next_spans(payload, pos, min(step, len(records) - start))
        stepped += some
    assert stepped == spans
    assert pos == len(payload)


@given(batches_of_records, st.integers(0, 4))
def test_other_libraries_read_ours(records: list[SimpleRecord], codec: int) -> None:
    batch = bytes(build_batch(records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5))
    # kafka-python brings gzip only; aiokafka uses the codecs that are installed here.
    libraries = (AiokafkaBatch, KafkaPythonBatch) if codec < 2 else (AiokafkaBatch,)
    for library in libraries:
        theirs = library(batch)
        assert theirs.validate_crc()
        read = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in library(batch)]
        assert read == [tuple(record) for record in records]


@pytest.mark.parametrize("codec", range(5))
def test_ours_is_aiokafkas(codec: int) -> None:
    """Byte for byte where nothing is compressed, by content otherwise (compressors differ)."""
    builder = AiokafkaBuilder(2, codec, 1, 7, 1, 5, 1 << 20)
    records = [SimpleRecord(T + i, b"k%d" % i, b"v" * i, (("h", b"1"),)) for i in range(300)]
    for i, record in enumerate(records):
        builder.append(i, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    ours = build_batch(
        records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5, transactional=True, leader_epoch=0
    )
    assert list(iterate_records(theirs)) == list(iterate_records(ours))
    assert crc_matches(theirs, 0, len(theirs))
    if codec == 0:
        assert parse_header(theirs, 0)._replace(leader_epoch=0) == parse_header(ours, 0)


def test_patching_in_place() -> None:
    batch = build_batch([ONE, ONE])
    assign_offset(batch, 0, 1 << 40, 9)
    assert crc_matches(batch, 0, len(batch))
    header = parse_header(batch, 0)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (1 << 40, 9, (1 << 40) + 1)
    set_max_timestamp(batch, 0, 1, T + 5)
    header = parse_header(batch, 0)
    assert (header.timestamp_type, header.max_timestamp) == (1, T + 5)
    assert crc_matches(batch, 0, len(batch))
    assert [record.timestamp for record in iterate_records(batch)] == [T + 5, T + 5]
    set_attributes(batch, 0, 0x70)
    header = parse_header(batch, 0)
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == T
    assert crc_matches(batch, 0, len(batch))
    batch[30] ^= 1
    assert not crc_matches(batch, 0, len(batch))


def test_walking_batches() -> None:
    first, second = build_batch([ONE] * 3), build_batch([ONE], base_offset=3)
    buf = bytes(first + second)
    assert [(pos, h.base_offset) for pos, h in iterate_batches(buf)] == [(0, 0), (len(first), 3)]
    assert [pos for pos, _ in iterate_batches(buf[:-1])] == [0]
    assert [pos for pos, _ in iterate_batches(buf, len(first))] == [len(first)]
    for at, value, code in (
        (8, b"\xff\xff\xff\xff", ErrorCode.CORRUPT_MESSAGE),
        (8, b"\x00\x00\x00\x10", ErrorCode.CORRUPT_MESSAGE),
        (16, b"\x01", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (16, b"\x05", ErrorCode.CORRUPT_MESSAGE),
    ):
        broken = bytearray(buf)
        broken[at : at + len(value)] = value
        with pytest.raises(KafkaError) as caught:
            list(iterate_batches(broken))
        assert caught.value.code is code


def test_delete_horizon_is_the_base_timestamp() -> None:
    batch = build_batch([ONE, SimpleRecord(T + 9, b"k", None)], delete_horizon_ms=T + 100)
    header = parse_header(batch, 0)
    assert (header.delete_horizon_ms, header.base_timestamp, header.max_timestamp) == (T + 100, T + 100, T + 9)
    assert [record.timestamp for record in iterate_records(batch)] == [T, T + 9]


def test_markers() -> None:
    marker = build_end_txn_marker(commit=False, coordinator_epoch=8, timestamp=T, producer_id=5, producer_epoch=2)
    header = parse_header(marker, 0)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    (record,) = iterate_records(marker)
    assert (record.key, record.value) == (bytes(4), b"\x00\x00\x00\x00\x00\x08")
    assert parse_end_txn_marker(record) == (ControlType.ABORT, 8)
    assert parse_control_key(b"\x00\x00\x00\x05") == (0, ControlType.KRAFT_VERSION)
    assert parse_end_txn_marker(record._replace(key=b"\x00\x00\x00\x02")) is None
    for key in (None, b"\x00", b"\xff\xff\x00\x01"):
        with pytest.raises(KafkaError):
            parse_control_key(key)


def test_an_empty_batch_keeps_the_sequence() -> None:
    batch = build_batch([ONE] * 4, base_offset=10, producer_id=5, producer_epoch=2, base_sequence=7, compression=1)
    empty = parse_header(empty_batch(parse_header(batch, 0)), 0)
    assert (empty.size, empty.record_count, empty.last_offset, empty.last_sequence) == (61, 0, 13, 10)
    assert list(iterate_records(empty_batch(parse_header(batch, 0)))) == []


def test_sequences_wrap() -> None:
    header = parse_header(build_batch([ONE] * 3, producer_id=5, producer_epoch=0, base_sequence=(1 << 31) - 2), 0)
    assert header.last_sequence == 0


@given(batches_of_records, st.data())
def test_damaged_records_are_refused_or_read(records: list[SimpleRecord], data: st.DataObject) -> None:
    """Any bytes behind a good header: KafkaError or records, never another exception."""
    batch = build_batch(records)
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    for read in (
        lambda: list(iterate_records(batch)),
        lambda: record_spans(batch_payload(batch, 0, parse_header(batch, 0)), len(records)),
    ):
        with contextlib.suppress(KafkaError):
            read()
