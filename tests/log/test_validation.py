"""A leader's checks on produced bytes. Every expected code and message was answered by Apache Kafka 4.3.1 to the
same bytes in a Produce v12 request; the two cases that differ on purpose are named `opaque`."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import pytest

from ottla.env.config import TopicConfig
from ottla.log.validation import (
    AppendOrigin,
    analyze_replicated,
    opaque_limit,
    response_message,
    validate,
    validate_opaque,
    validate_produce,
)
from ottla.log.validation_records import RecordValidationError
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol import compression
from ottla.protocol.records import (
    BatchHeader,
    SimpleRecord,
    assemble_batch,
    build_batch,
    build_end_txn_marker,
    crc_matches,
    encode_record,
    iterate_records,
    pack_header,
    parse_header,
    set_attributes,
    write_crc,
)

NOW = 1_794_741_782_945
HOUR = 3_600_000
TP = TopicPartition("t", 0)
PLAIN = TopicConfig()
ONE = SimpleRecord(NOW, b"k", b"v")
PAIR = bytes(build_batch([ONE, ONE]))
CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]


def patched(batch: bytes = PAIR, **fields: int) -> bytearray:
    """The batch with other header fields and the CRC that fits them."""
    buf = bytearray(batch)
    header: BatchHeader = parse_header(buf, 0)._replace(**fields)
    buf[:61] = pack_header(header)
    write_crc(buf, 0, len(buf))
    return buf


def flipped() -> bytearray:
    buf = bytearray(PAIR)
    buf[-1] ^= 1
    return buf


def with_magic(magic: int) -> bytearray:
    buf = bytearray(PAIR)
    buf[16] = magic
    return buf


def compressed(codec: int, payload: bytes, count: int = 1) -> bytearray:
    """A batch whose record bytes are `payload`, compressed or not, under the name of `codec`."""
    batch = assemble_batch(
        payload, count, base_offset=0, last_offset_delta=count - 1, base_timestamp=NOW, max_timestamp=NOW
    )
    set_attributes(batch, 0, codec)
    return batch


def refused(buf: bytes | bytearray, config: TopicConfig = PLAIN, version: int = 12) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate_produce(bytearray(buf), TP, config, NOW, version=version)
    return caught.value


@pytest.mark.parametrize(
    ("buf", "code"),
    [
        pytest.param(b"", 87, id="nothing"),
        pytest.param(PAIR[:16], 87, id="short"),
        pytest.param(PAIR[:40], 87, id="cut in the header"),
        pytest.param(PAIR[:-1], 87, id="cut in the records"),
        pytest.param(PAIR + bytes(40), 2, id="zeros after the batch"),
        pytest.param(PAIR + PAIR, 87, id="two batches"),
        pytest.param(flipped(), 2, id="crc"),
        pytest.param(with_magic(0), 87, id="magic 0"),
        pytest.param(with_magic(1), 87, id="magic 1"),
        pytest.param(with_magic(3), 2, id="magic 3"),
        pytest.param(with_magic(255), 2, id="magic -1"),
        pytest.param(patched(batch_length=-1), 2, id="length -1"),
        pytest.param(patched(batch_length=5), 2, id="length 5"),
        pytest.param(patched(batch_length=13), 2, id="length 13"),
        pytest.param(patched(batch_length=14), 2, id="length 14"),
        pytest.param(patched(batch_length=48), 2, id="length 48"),
        pytest.param(patched(base_offset=7), 87, id="base offset 7"),
        pytest.param(patched(record_count=0), 87, id="count 0"),
        pytest.param(patched(record_count=-1), 87, id="count -1"),
        pytest.param(patched(record_count=3), 87, id="count 3"),
        pytest.param(patched(record_count=3, last_offset_delta=2), 87, id="count 3 of 2"),
        pytest.param(patched(last_offset_delta=-1), 87, id="last offset -1"),
        pytest.param(patched(last_offset_delta=-5), 87, id="last offset -5"),
        pytest.param(patched(attributes=0x20), 87, id="control"),
        pytest.param(patched(producer_id=5, producer_epoch=0), 87, id="producer without sequence"),
        pytest.param(patched(attributes=5), -1, id="codec 5"),
        pytest.param(patched(attributes=7), -1, id="codec 7"),
    ],
)
def test_refusal(buf: bytes, code: int) -> None:
    assert refused(buf).code == code


@pytest.mark.parametrize(
    "buf",
    [
        pytest.param(PAIR, id="as it is"),
        pytest.param(PAIR + bytes(5), id="five bytes too many"),
        pytest.param(PAIR + PAIR[:-1], id="a cut batch after it"),
        pytest.param(patched(base_sequence=9, producer_epoch=3), id="sequence without producer"),
        pytest.param(patched(producer_id=5, base_sequence=0), id="producer without epoch"),
        pytest.param(patched(attributes=0x40), id="delete horizon bit"),
        pytest.param(patched(attributes=0x80), id="unknown bit"),
        pytest.param(patched(max_timestamp=5), id="max timestamp too low"),
        pytest.param(build_batch([SimpleRecord(-2, b"k", b"v")]), id="timestamp -2"),
        pytest.param(build_batch([ONE, ONE], timestamp_type=1, log_append_time=NOW), id="stamped by the producer"),
    ],
)
def test_accepted(buf: bytes) -> None:
    validated = validate_produce(bytearray(buf), TP, PLAIN, NOW, version=12)
    ((position, header),) = validated.batches
    assert position == 0
    assert len(memoryview(validated.buf)) == header.size
    assert crc_matches(validated.buf, 0, header.size)
    assert header.timestamp_type == 0
    assert validated.log_append_time_ms == -1


CONFIGS = [
    PLAIN,
    TopicConfig(max_message_bytes=100),
    TopicConfig(cleanup_policy=("compact",)),
    TopicConfig(message_timestamp_type="LogAppendTime"),
    TopicConfig(compression_type="lz4"),
    TopicConfig(message_timestamp_before_max_ms=HOUR),
    TopicConfig(message_timestamp_after_max_ms=0),
]
FIELDS = {
    "base_offset": [1],
    "batch_length": [len(PAIR) - 13, len(PAIR), 13, -1],
    "magic": [1, 3],
    "attributes": [*range(1, 7), 0x08, 0x10, 0x20, 0x40],
    "last_offset_delta": [0, 2, 999, -1],
    "record_count": [0, 1, 3, -1, 1000],
    "base_timestamp": [NOW + 2 * HOUR, -1],
    "max_timestamp": [NOW + 1, NOW + 2 * HOUR, NOW - 2 * HOUR, -1],
    "producer_id": [7],
    "base_sequence": [0, 5],
}


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_taken_as_it_is_would_go_the_long_way_unchanged(config: TopicConfig) -> None:
    """No, one and every two changes of a good batch."""
    changes = [(name, value) for name, values in FIELDS.items() for value in values]
    sent = [bytearray(PAIR), flipped(), PAIR + b"x", PAIR + PAIR]
    sent += [patched(**dict(pair)) for pair in combinations_with_replacement(changes, 2)]
    latest = NOW + config.message_timestamp_after_max_ms
    taken = 0
    for batch, version in product(sent, (6, 12)):
        header = validate_opaque(bytearray(batch), version, opaque_limit(config), latest)
        if header is not None:
            buf, batches, append_time = validate_produce(bytearray(batch), TP, config, NOW, version=version)
            assert (bytes(buf), batches, append_time) == (bytes(batch), [(0, header)], -1)
            assert header == parse_header(batch, 0)
            taken += 1
    assert (taken > 0) == (opaque_limit(config) > 0)


def test_the_usual_batch_is_taken_as_it_is() -> None:
    limit = opaque_limit(PLAIN)
    for codec in [compression.NONE, *CODECS]:
        sent = build_batch([ONE, ONE], compression=codec, producer_id=7, producer_epoch=0, base_sequence=3)
        assert validate_opaque(sent, 12, limit, NOW) == parse_header(sent, 0)
    assert validate_opaque(flipped(), 12, limit, NOW) is None
    assert [opaque_limit(config) for config in CONFIGS] == [limit, 100, 0, 0, 0, 0, limit]


def test_the_buffer_is_not_copied() -> None:
    buf = bytearray(PAIR)
    assert validate_produce(buf, TP, PLAIN, NOW, version=12).buf is buf


def test_only_some_messages_reach_the_client() -> None:
    assert response_message(refused(flipped())) is None
    assert response_message(refused(patched(record_count=3))) is None
    assert response_message(refused(PAIR + bytes(40))) is None
    assert response_message(refused(with_magic(255))) == "Invalid magic found in record: -1"
    assert (
        response_message(refused(patched(batch_length=5)))
        == "Record size 5 is less than the minimum record overhead (14)"
    )


def test_sizes() -> None:
    large = build_batch([SimpleRecord(NOW, b"k", b"v" * 3000)])
    assert refused(large, PLAIN.replace(max_message_bytes=2000)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(large, PLAIN.replace(segment_bytes=2000)).code is ErrorCode.RECORD_LIST_TOO_LARGE
    grown = build_batch([SimpleRecord(NOW, b"k", b"v" * 3000)], compression=compression.GZIP)
    config = PLAIN.replace(max_message_bytes=2000, compression_type="uncompressed")
    assert refused(grown, config).code is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    batch = build_batch([ONE], compression=compression.ZSTD)
    assert refused(batch, version=6).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    validate_produce(batch, TP, PLAIN, NOW, version=7)


def test_future_timestamp_names_the_record() -> None:
    error = refused(build_batch([ONE, SimpleRecord(NOW + 2 * HOUR, b"k", b"v")]))
    assert isinstance(error, RecordValidationError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert response_message(error) == "One or more records have been rejected due to invalid timestamp"
    reason = (
        f"Timestamp {NOW + 2 * HOUR} of message with offset 1 is out of range. "
        f"The timestamp should be within [-9223370242112992862, {NOW + HOUR}]"
    )
    assert error.record_errors == [(1, reason)]


def test_old_timestamps() -> None:
    config = PLAIN.replace(message_timestamp_before_max_ms=HOUR)
    error = refused(build_batch([ONE, SimpleRecord(NOW - 2 * HOUR, b"k", b"v")]), config)
    assert isinstance(error, RecordValidationError)
    assert [index for index, _ in error.record_errors] == [1]
    validate_produce(build_batch([SimpleRecord(-1, b"k", b"v")]), TP, config, NOW, version=12)
    validate_produce(build_batch([SimpleRecord(NOW - HOUR, b"k", b"v")]), TP, config, NOW, version=12)


def test_a_max_timestamp_that_lies_is_corrected() -> None:
    validated = validate_produce(patched(max_timestamp=NOW + 2 * HOUR), TP, PLAIN, NOW, version=12)
    header = validated.batches[0][1]
    assert header.max_timestamp == NOW
    assert crc_matches(validated.buf, 0, header.size)


def test_a_producer_may_not_stamp() -> None:
    stamped = build_batch([ONE, SimpleRecord(NOW, None, None)], timestamp_type=1, log_append_time=NOW)
    error = refused(stamped, PLAIN.replace(message_timestamp_type="LogAppendTime"))
    assert isinstance(error, RecordValidationError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    reason = (
        f"Invalid timestamp type in message DefaultRecord(offset=1, timestamp={NOW}, key=0 bytes, value=0 bytes). "
        "Producer should not set timestamp type to LogAppendTime."
    )
    assert error.record_errors[1] == (1, reason)
    assert refused(build_batch([ONE], timestamp_type=1, log_append_time=-1)).code is ErrorCode.INVALID_TIMESTAMP
    assert refused(build_batch([ONE], timestamp_type=1, log_append_time=NOW + 2 * HOUR)).code == 32


def test_log_append_time_is_stamped() -> None:
    config = PLAIN.replace(message_timestamp_type="LogAppendTime")
    buf = build_batch([SimpleRecord(5, b"k", b"v"), SimpleRecord(NOW + 9 * HOUR, b"k", b"v")])
    validated = validate_produce(buf, TP, config, NOW, version=12)
    assert validated.buf is buf
    assert validated.log_append_time_ms == NOW
    header = validated.batches[0][1]
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW)
    assert crc_matches(buf, 0, len(buf))
    assert [record.timestamp for record in iterate_records(buf)] == [NOW, NOW]


def test_compacted_topics_need_keys() -> None:
    config = PLAIN.replace(cleanup_policy=frozenset({"compact"}))
    keyless = "Compacted topic cannot accept message without key in topic partition t-0"
    error = refused(build_batch([ONE] + [SimpleRecord(NOW, None, b"v")] * 5), config)
    assert isinstance(error, RecordValidationError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [(index, keyless) for index in range(1, 6)]
    assert response_message(error) == (
        "One or more records have been rejected due to 5 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{keyless}'), "
        f"RecordError(batchIndex=2, message='{keyless}'), RecordError(batchIndex=3, message='{keyless}')]"
    )
    error = refused(build_batch([SimpleRecord(NOW, None, b"v"), SimpleRecord(NOW + 2 * HOUR, b"k", b"v")]), config)
    assert isinstance(error, RecordValidationError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]
    validate_produce(bytearray(PAIR), TP, config, NOW, version=12)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_and_garbage_where_records_are_walked(codec: int) -> None:
    config = PLAIN.replace(cleanup_policy=frozenset({"compact"}))
    bomb = compressed(codec, compression.compress(codec, bytes(20 << 20)))
    assert refused(bomb, config.replace(max_message_bytes=1 << 24)).code is ErrorCode.INVALID_RECORD
    assert refused(patched(attributes=codec), config).code is ErrorCode.UNKNOWN_SERVER_ERROR
    cut = patched(record_count=1, last_offset_delta=0)
    assert refused(cut, config).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_opaque_batches_are_not_looked_into(codec: int) -> None:
    """Kafka walks every batch and refuses these; here a plain topic takes what has a good header and CRC."""
    validate_produce(patched(attributes=codec), TP, PLAIN, NOW, version=12)


@pytest.mark.parametrize("source", [compression.NONE, *CODECS])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_recompression(source: int, target: str) -> None:
    records = [SimpleRecord(NOW + i, b"k%d" % i, None if i % 3 else b"v" * i, (("h", b"1"),)) for i in range(50)]
    batch = build_batch(
        records, compression=source, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True
    )
    validated = validate_produce(batch, TP, PLAIN.replace(compression_type=target), NOW, version=12)
    header = validated.batches[0][1]
    assert header.compression == compression.NAMES[target]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert header.is_transactional
    assert (header.record_count, header.max_timestamp) == (50, NOW + 49)
    assert (validated.buf is batch) == (source == compression.NAMES[target])
    assert crc_matches(validated.buf, 0, header.size)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in iterate_records(validated.buf)] == records


def test_recompression_numbers_records_anew() -> None:
    payload = bytearray()
    encode_record(payload, 0, 0, b"a", b"1")
    encode_record(payload, 5, 0, b"b", b"2")
    batch = compressed(compression.NONE, payload, 2)
    validated = validate_produce(batch, TP, PLAIN.replace(compression_type="lz4"), NOW, version=12)
    assert [record.offset for record in iterate_records(validated.buf)] == [0, 1]


def test_coordinators_may_write_markers() -> None:
    marker = build_end_txn_marker(commit=True, coordinator_epoch=3, timestamp=NOW, producer_id=1, producer_epoch=0)
    config = PLAIN.replace(cleanup_policy=frozenset({"compact"}), compression_type="gzip")
    validated = validate(marker, TP, config, NOW, origin=AppendOrigin.COORDINATOR)
    assert validated.batches[0][1].is_control
    assert validated.batches[0][1].compression == 0


def test_a_follower_checks_crc_and_order() -> None:
    first, second = build_batch([ONE, ONE], base_offset=5), build_batch([ONE], base_offset=7)
    batches = analyze_replicated(bytes(first + second + second[:-3]), TP)
    assert [(position, header.base_offset) for position, header in batches] == [(0, 5), (len(first), 7)]
    with pytest.raises(KafkaError, match="Out of order"):
        analyze_replicated(bytes(second + first), TP)
    second[-1] ^= 1
    with pytest.raises(KafkaError, match="corrupt"):
        analyze_replicated(bytes(first + second), TP)
