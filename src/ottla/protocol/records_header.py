"""The header of a record batch (format v2, magic 2): parse it, check its CRC32C, patch it in place.

Functions over a buffer and a position, with one precompiled Struct: this is the produce and fetch path, where nothing
but these 61 bytes is looked at. Positions are those of the batch's first byte. The CRC covers everything from the
attributes on, so the base offset and the leader epoch can be set without touching it. Kafka 4.0 no longer writes magics
0 and 1: the caller handles them (`magic_at`), and nothing here decodes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.crc32c import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC_V2 = 2
LOG_OVERHEAD = 12
"""Base offset and batch length: the bytes that `batch_length` does not count."""
HEADER_BYTES = 61
SMALLEST_BATCH_BYTES = 14
"""What Kafka demands of the length field before it even looks at the magic (the overhead of a magic 0 record)."""

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

MAGIC_AT = 16
_CRC_AT = 17
CRC_COVERS_FROM = 21
"""Where the attributes are, the first of the bytes under the CRC."""
ATTRIBUTES_LOW_AT = 22
"""The low byte of the attributes, which has all the bits of the masks above."""
PRODUCER_ID_AT = 43
"""Producer id, producer epoch and base sequence."""
_MAX_TIMESTAMP_AT = 35
_INT32_MAX = 0x7FFFFFFF

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")

unpack_header = _HEADER.unpack_from
_unpack_crc = _CRC.unpack_from
_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """-1 without a producer; sequences wrap from the largest int32 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        return (self.attributes & TIMESTAMP_TYPE_MASK) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """KIP-534: when the bit is set, the base timestamp is the time after which tombstones and markers may go."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    def time_from(self, offset: int) -> int:
        """The time of the first record from `offset` on, as far as the header has it: else the batch's largest time."""
        at_first = offset <= self.base_offset and not self.has_delete_horizon
        by_client = self.timestamp_type != LOG_APPEND_TIME
        return self.base_timestamp if at_first and by_client else self.max_timestamp


def parse_header(buf: Buffer, pos: int) -> BatchHeader:
    """The header at `pos`; the 61 bytes must be there (struct.error otherwise) and are not judged."""
    return _new_tuple(BatchHeader, unpack_header(buf, pos))


def batch_size_at(buf: Buffer, pos: int) -> int:
    """The whole size of the batch at `pos`, from its length field; needs 12 bytes."""
    size: int = _LENGTH.unpack_from(buf, pos + 8)[0]
    return size + LOG_OVERHEAD


def magic_at(buf: memoryview | bytes | bytearray, pos: int) -> int:
    """The magic byte; its place is the same in every format version. Needs 17 bytes."""
    return buf[pos + MAGIC_AT]


def has_transactional_bit(buf: bytes | bytearray | memoryview) -> bool:
    """Whether the attributes of the first batch have the bit; the batch itself may be damaged or cut off."""
    return len(buf) > ATTRIBUTES_LOW_AT and buf[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_MASK != 0


def computed_crc(buf: Buffer, pos: int, size: int) -> int:
    return crc32c(memoryview(buf)[pos + CRC_COVERS_FROM : pos + size])


def crc_matches(buf: Buffer, pos: int, size: int) -> bool:
    """Whether the stored CRC32C is that of the batch's bytes; `size` is `BatchHeader.size`, and `buf` holds the whole
    batch.
    """
    stored: int = _unpack_crc(buf, pos + _CRC_AT)[0]
    return crc32c(memoryview(buf)[pos + CRC_COVERS_FROM : pos + size]) == stored


def assign_offset(buf: Buffer, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch in place; neither is under the CRC."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + LOG_OVERHEAD, leader_epoch)


def write_crc(buf: Buffer, pos: int, size: int) -> None:
    _CRC.pack_into(buf, pos + _CRC_AT, computed_crc(buf, pos, size))


def set_attributes(buf: Buffer, pos: int, attributes: int) -> None:
    """Replace the attributes and recompute the CRC."""
    _ATTRIBUTES.pack_into(buf, pos + CRC_COVERS_FROM, attributes)
    write_crc(buf, pos, batch_size_at(buf, pos))


def set_max_timestamp(buf: Buffer, pos: int, timestamp_type: int, max_timestamp: int) -> None:
    """Set timestamp type and max timestamp and recompute the CRC; nothing is written when both stand already."""
    attributes: int = _ATTRIBUTES.unpack_from(buf, pos + CRC_COVERS_FROM)[0]
    new_attributes = (attributes & ~TIMESTAMP_TYPE_MASK) | (timestamp_type << 3)
    if new_attributes == attributes and _TIMESTAMP.unpack_from(buf, pos + _MAX_TIMESTAMP_AT)[0] == max_timestamp:
        return
    _TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_AT, max_timestamp)
    set_attributes(buf, pos, new_attributes)


def pack_header(header: BatchHeader) -> bytes:
    return _HEADER.pack(*header)


def iterate_batches(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch in `buf[pos:end]` with its position; a partial one at the end is left out.

    CORRUPT_MESSAGE for a length that no batch can have, UNSUPPORTED_FOR_MESSAGE_FORMAT for an older magic. The CRC
    is not checked.
    """
    if end is None:
        end = memoryview(buf).nbytes
    while end - pos >= HEADER_BYTES:
        header = parse_header(buf, pos)
        size = header.batch_length + LOG_OVERHEAD
        if header.batch_length < SMALLEST_BATCH_BYTES:
            raise corrupt_length(header.batch_length)
        if header.magic != MAGIC_V2:
            raise unsupported_magic(header.magic)
        if size < HEADER_BYTES:
            raise corrupt_size(size)
        if size > end - pos:
            return
        yield pos, header
        pos += size


def corrupt_length(length: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record size {length} is less than the minimum record overhead ({SMALLEST_BATCH_BYTES})",
    )


def corrupt_size(size: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record batch is corrupted (the size {size} is smaller than the minimum allowed overhead {HEADER_BYTES})",
    )


def unsupported_magic(magic: int) -> KafkaError:
    if 0 <= magic < MAGIC_V2:
        return KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"Record batches with magic {magic} are refused")
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
