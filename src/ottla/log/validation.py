"""What a leader does to a produced buffer before it is appended: check, patch the timestamp, recompress.

Pure functions of the bytes, the topic's settings and the time. They may patch the buffer in place, which is the receive
buffer itself; the log assigns offsets later. A client's batch to a plain topic costs a header and a CRC. Records are
walked only for a rule about records: keys in compacted topics, timestamps outside the allowed range, or recompression
to another codec. Error codes, messages and the order of the checks are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.validation_records import RecordValidationError, recompress, walk_records
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.protocol.compression import NAMES, ZSTD, unknown_codec
from ottla.protocol.crc32c import COPY_BYTES, crc32c, crc32c_of_bytes
from ottla.protocol.records_header import (
    ATTRIBUTES_LOW_AT,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_COVERS_FROM,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    SMALLEST_BATCH_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    batch_size_at,
    corrupt_length,
    corrupt_size,
    crc_matches,
    has_transactional_bit,
    iterate_batches,
    magic_at,
    parse_header,
    set_max_timestamp,
    unpack_header,
    unsupported_magic,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.env.config import TopicConfig
    from ottla.model.ids import TopicPartition

FIRST_ZSTD_VERSION = 7
"""The first Produce version that may carry zstd."""

_NEVER_OPAQUE = CONTROL_MASK | TIMESTAMP_TYPE_MASK
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_new_tuple = tuple.__new__
_BYTES_UP_TO_MAGIC = 17
_BODY_OVERHEAD = HEADER_BYTES - LOG_OVERHEAD
MIN_RECORD_BYTES = 7
"""Length, attributes, two deltas, two lengths and the count of headers: one byte each."""


class AppendOrigin(IntEnum):
    CLIENT = 0
    COORDINATOR = 1
    """The group and transaction coordinators' own records: control batches and any base offset are allowed."""


class RefusedRequestError(KafkaError):
    """Refused before the partition's log is used: the answer carries no log start offset."""


class MalformedRecordsError(RefusedRequestError):
    """The first bytes are not a batch: as in Kafka, the whole Produce request is refused, with the reason for every
    partition.
    """


class ValidatedBatches(NamedTuple):
    buf: Buffer
    """The bytes to append: the caller's own buffer (trimmed to whole batches), or a new one after recompression."""
    batches: list[tuple[int, BatchHeader]]
    """Position and header of each batch in `buf`, as they stand after patching; base offsets are not yet assigned."""
    log_append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime."""

    @property
    def record_count(self) -> int:
        return sum(header.last_offset_delta + 1 for _, header in self.batches)


def opaque_limit(config: TopicConfig) -> int:
    """The largest batch that `validate_opaque` accepts for a topic with these settings. The limit is 0 when a setting needs
    every record checked, another codec or the broker's time: `validate_produce` then checks each batch.
    """
    if (
        config.message_timestamp_type == "LogAppendTime"
        or config.compression_type != "producer"
        or "compact" in config.cleanup_policy
        or config.message_timestamp_before_max_ms != _LONG_MAX
        or config.ottla_validate_records
    ):
        return 0
    return min(config.max_message_bytes, config.internal_segment_bytes or config.segment_bytes)


def validate_opaque(buf: bytearray | memoryview, version: int, limit: int, latest_ms: int) -> BatchHeader | None:
    """The header of the one batch in `buf` when it breaks no rule and nothing in it is to be changed.

    This is the usual case, checked in one step because every produced batch pays for it. None is no refusal:
    `validate_produce` then applies the same rules one by one, and finds the error or makes the change.
    """
    size = len(buf)
    if not HEADER_BYTES <= size <= limit:
        return None
    header = _new_tuple(BatchHeader, unpack_header(buf, 0))
    base_offset, length, _, magic, crc, attributes, last_delta, base_time, max_time, producer, _, sequence, count = (
        header
    )
    codec = attributes & COMPRESSION_MASK
    if (
        base_offset == 0
        and length + LOG_OVERHEAD == size
        and magic == MAGIC_V2
        and not attributes & _NEVER_OPAQUE
        and (codec < ZSTD or (codec == ZSTD and version >= FIRST_ZSTD_VERSION))
        and 0 < count == last_delta + 1
        and (producer < 0 or sequence >= 0)
        and (codec or length >= _BODY_OVERHEAD + count * MIN_RECORD_BYTES)
        and NO_TIMESTAMP <= max_time <= latest_ms
        and base_time <= latest_ms
        and crc
        == (
            crc32c_of_bytes(bytes(memoryview(buf)[CRC_COVERS_FROM:]))
            if size <= COPY_BYTES
            else crc32c(memoryview(buf)[CRC_COVERS_FROM:])
        )
    ):
        return header
    return None


def validate_produce(
    buf: bytearray | memoryview,
    partition: TopicPartition,
    config: TopicConfig,
    now_ms: int,
    *,
    version: int,
    on_loop: bool = False,
) -> ValidatedBatches:
    """The one batch that a Produce request carries for a partition. Raises KafkaError or RecordValidationError, and
    LargeWalkError when its records would hold the loop for too long."""
    header = parse_header(buf, 0) if len(buf) >= HEADER_BYTES else None
    if header is None or not _is_exactly_one(header, len(buf), version):
        size = check_request(buf, version)
        if size < HEADER_BYTES:
            raise corrupt_size(size)
        header = parse_header(buf, 0)
        if len(buf) != size:
            buf = memoryview(buf)[:size]
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {partition} should be 0, "
            f"but it is {header.base_offset}",
        )
    _check_size_and_crc(buf, 0, header, partition, config)
    _check_client_batch(header, partition)
    return _timestamps_and_codec(buf, header, partition, config, now_ms, on_loop=on_loop)


def response_message(error: KafkaError) -> str | None:
    """The message that the Produce response carries beside the error code; Kafka writes most messages only to its own
    log.
    """
    return error.message if isinstance(error, RecordValidationError | MalformedRecordsError) else None


def validate(
    buf: bytearray | memoryview,
    partition: TopicPartition,
    config: TopicConfig,
    now_ms: int,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedBatches:
    """A leader's append that does not come from a Produce request: the coordinators' batches."""
    if origin is AppendOrigin.CLIENT:
        return validate_produce(buf, partition, config, now_ms, version=FIRST_ZSTD_VERSION)
    batches = list(iterate_batches(buf))
    if not batches:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Record batch has no batches at all")
    if len(batches) > 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    header = batches[0][1]
    _check_size_and_crc(buf, 0, header, partition, config)
    return _timestamps_and_codec(buf, header, partition, config, now_ms)


def analyze_replicated(buf: Buffer, partition: TopicPartition) -> list[tuple[int, BatchHeader]]:
    """The whole batches that a follower (or a raft replica) takes as they are: CRC and rising offsets checked."""
    last_offset = -1
    batches: list[tuple[int, BatchHeader]] = []
    for pos, header in iterate_batches(buf):
        if not crc_matches(buf, pos, header.size):
            raise _corrupt(header, partition)
        if header.last_offset <= last_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Out of order offsets found in append to {partition}: {header.last_offset} after {last_offset}",
            )
        last_offset = header.last_offset
        batches.append((pos, header))
    return batches


def _is_exactly_one(header: BatchHeader, length: int, version: int) -> bool:
    """The usual case, from the header alone; `check_request` examines every other buffer."""
    return (
        header.batch_length + LOG_OVERHEAD == length
        and header.magic == MAGIC_V2
        and (version >= FIRST_ZSTD_VERSION or header.attributes & COMPRESSION_MASK < ZSTD)
    )


def is_transactional(buf: bytearray | memoryview) -> bool:
    """Of the first batch, if there is one. RefusedRequestError when the first bytes are no batch."""
    return _first_size(buf) > 0 and magic_at(buf, 0) == MAGIC_V2 and has_transactional_bit(buf)


def check_request(buf: bytearray | memoryview, version: int) -> int:
    """Check the rules of a Produce request of this version, before any log is used; returns the size of the only batch.

    The bytes after the batch must be too few for a second batch.
    """
    length = len(buf)
    size = _first_size(buf)
    if size == 0:
        raise _request_error(version, "must have at least one record batch per partition")
    if magic_at(buf, 0) != MAGIC_V2:
        raise _request_error(version, "are only allowed to contain record batches with magic version 2")
    codec = buf[ATTRIBUTES_LOW_AT] & COMPRESSION_MASK
    if version < FIRST_ZSTD_VERSION and codec > ZSTD:
        unknown = unknown_codec(codec)
        raise RefusedRequestError(unknown.code, unknown.message)
    if version < FIRST_ZSTD_VERSION and codec == ZSTD:
        raise RefusedRequestError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if length - size >= LOG_OVERHEAD and _whole_batch_at(buf, size, length):
        raise _request_error(version, "are only allowed to contain exactly one record batch per partition")
    return size


def _first_size(buf: bytearray | memoryview) -> int:
    """The size of the first batch, 0 when it is cut off. Raises RefusedRequestError."""
    if len(buf) < LOG_OVERHEAD:
        return 0
    if batch_size_at(buf, 0) > _INT_MAX and len(buf) >= _BYTES_UP_TO_MAGIC and magic_at(buf, 0) <= MAGIC_V2:
        raise RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR)  # where Kafka's sum overflows
    try:
        return _whole_batch_at(buf, 0, len(buf))
    except KafkaError as error:
        raise MalformedRecordsError(error.code, error.message) from error


def _whole_batch_at(buf: bytearray | memoryview, pos: int, end: int) -> int:
    """The size of the batch at `pos`, 0 when it is cut off."""
    size = batch_size_at(buf, pos)
    if size - LOG_OVERHEAD < SMALLEST_BATCH_BYTES:
        raise corrupt_length(size - LOG_OVERHEAD)
    if end - pos < _BYTES_UP_TO_MAGIC:
        return 0
    magic = magic_at(buf, pos)
    if magic > MAGIC_V2:
        raise unsupported_magic(magic - 256 if magic > 127 else magic)
    return size if size <= end - pos else 0


def _request_error(version: int, rule: str) -> KafkaError:
    return RefusedRequestError(ErrorCode.INVALID_RECORD, f"Produce requests with version {version} {rule}")


def _check_size_and_crc(
    buf: Buffer, pos: int, header: BatchHeader, partition: TopicPartition, config: TopicConfig
) -> None:
    size = header.batch_length + LOG_OVERHEAD
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {partition} is {size} bytes "
            f"which exceeds the maximum configured value of {config.max_message_bytes}.",
        )
    if not crc_matches(buf, pos, size):
        raise _corrupt(header, partition)


def _corrupt(header: BatchHeader, partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record is corrupt (stored crc = {header.crc}) in topic partition {partition}.",
    )


def _check_client_batch(header: BatchHeader, partition: TopicPartition) -> None:
    count = header.record_count
    attributes = header.attributes
    codec = attributes & COMPRESSION_MASK
    if (
        0 < count == header.last_offset_delta + 1
        and not attributes & CONTROL_MASK
        and (header.producer_id < 0 or header.base_sequence >= 0)
        and (codec or header.batch_length >= _BODY_OVERHEAD + count * MIN_RECORD_BYTES)
        and codec <= ZSTD
    ):
        return
    raise _refused_batch(header, partition)


def _refused_batch(header: BatchHeader, partition: TopicPartition) -> KafkaError:
    """The first rule that the header breaks, in Kafka's order."""
    count = header.record_count
    offsets = f"[{header.base_offset}, {header.last_offset}]"
    if header.last_offset_delta < 0:
        problem = f"Batch has an invalid offset range: {offsets}"
    elif count <= 0:
        problem = f"Invalid reported count for record batch: {count}"
    elif header.last_offset_delta + 1 != count:
        problem = f"Inconsistent batch offset range {offsets} and count of records {count}"
    elif header.is_control:
        problem = "Clients are not allowed to write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
    elif header.compression > ZSTD:
        return unknown_codec(header.compression)
    else:
        problem = f"{count} records do not fit into the batch"
    return KafkaError(ErrorCode.INVALID_RECORD, f"{problem} in topic partition {partition}")


def _timestamps_and_codec(
    buf: bytearray | memoryview,
    header: BatchHeader,
    partition: TopicPartition,
    config: TopicConfig,
    now_ms: int,
    *,
    on_loop: bool = False,
) -> ValidatedBatches:
    timestamp_type = LOG_APPEND_TIME if config.message_timestamp_type == "LogAppendTime" else CREATE_TIME
    codec = header.attributes & COMPRESSION_MASK
    target_codec = codec if config.compression_type == "producer" else NAMES[config.compression_type]
    recompressed = target_codec != codec and not (codec == 0 and header.is_control)
    max_timestamp = header.max_timestamp
    if recompressed or _records_matter(header, config, timestamp_type, now_ms):
        walked = walk_records(buf, header, partition, config, timestamp_type, now_ms, on_loop=on_loop)
        max_timestamp = walked.max_timestamp
        if codec and not recompressed and not walked.consecutive:
            # Kafka rebuilds such a batch from records whose keys and values it has skipped, and throws an exception.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The offsets of a compressed batch are not consecutive")
        if recompressed:
            fresh = recompress(walked, header, config, target_codec, timestamp_type, now_ms)
            _recheck_size(len(fresh), partition, config)
            return _finish(fresh, partition, config, now_ms if timestamp_type else NO_TIMESTAMP)
    if timestamp_type == LOG_APPEND_TIME:
        max_timestamp = now_ms
    if max_timestamp != header.max_timestamp or timestamp_type != (header.attributes & TIMESTAMP_TYPE_MASK) >> 3:
        set_max_timestamp(buf, 0, timestamp_type, max_timestamp)
        header = parse_header(buf, 0)
    _check_segment_size(header.batch_length + LOG_OVERHEAD, partition, config)
    return ValidatedBatches(buf, [(0, header)], now_ms if timestamp_type else NO_TIMESTAMP)


def _records_matter(header: BatchHeader, config: TopicConfig, timestamp_type: int, now_ms: int) -> bool:
    """Whether a rule of this topic is about single records. If the header's timestamps are in range, the records'
    timestamps are not checked.
    """
    if ("compact" in config.cleanup_policy or config.ottla_validate_records) and not header.is_control:
        return True
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return True
    if timestamp_type == LOG_APPEND_TIME:
        return False
    if config.message_timestamp_before_max_ms != _LONG_MAX:
        return True
    latest = now_ms + config.message_timestamp_after_max_ms
    return not NO_TIMESTAMP <= header.max_timestamp <= latest or header.base_timestamp > latest


def _recheck_size(size: int, partition: TopicPartition, config: TopicConfig) -> None:
    if size > config.max_message_bytes:
        # The missing blank between "to" and "partition" is Kafka's.
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"Message batch size is {size} bytes in append topartition {partition} "
            f"which exceeds the maximum configured size of {config.max_message_bytes}.",
        )


def _check_segment_size(size: int, partition: TopicPartition, config: TopicConfig) -> None:
    limit = config.internal_segment_bytes or config.segment_bytes
    if size > limit:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition {partition}, "
            f"which exceeds the maximum configured segment size of {limit}.",
        )


def _finish(fresh: bytearray, partition: TopicPartition, config: TopicConfig, append_time: int) -> ValidatedBatches:
    _check_segment_size(len(fresh), partition, config)
    return ValidatedBatches(fresh, [(0, parse_header(fresh, 0))], append_time)
