"""Writing batches: records to bytes, pieces of records to a batch, and the control batches of brokers.

`build_batch` gives consecutive offsets from its base; `assemble_batch` takes records already encoded (compaction and
recompression keep offsets with gaps). Whatever is built here is what Kafka's own builder writes for the same input.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.ids import NO_TIMESTAMP
from ottla.protocol.compression import compress
from ottla.protocol.records_header import (
    CONTROL_MASK,
    CREATE_TIME,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    BatchHeader,
    pack_header,
    write_crc,
)
from ottla.protocol.records_walk import Headers, Record, invalid_record

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SimpleRecord(NamedTuple):
    """A record before it has an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint of at most 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> None:
    """Append one record to `out`."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, key)
    _write_nullable(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_nullable(body, name.encode())
        _write_nullable(body, content)
    write_varint(out, len(body))
    out += body


def assemble_batch(
    payload: Buffer,
    record_count: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    level: int | None = None,
) -> bytearray:
    """A batch around encoded records; the payload is compressed as `attributes` say. Mutable, to be patched later."""
    codec = attributes & 7
    body = compress(codec, payload, level) if codec else payload
    header = BatchHeader(
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD + memoryview(body).nbytes,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch = bytearray(pack_header(header))
    batch += body
    write_crc(batch, 0, len(batch))
    return batch


def build_batch(
    records: Iterable[SimpleRecord | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = 0,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch with the offsets `base_offset`, + 1, ...; at least one record."""
    payload = bytearray()
    count = 0
    base_timestamp = delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    for record in records:
        timestamp = record.timestamp
        if base_timestamp is None:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        encode_record(payload, count, timestamp - base_timestamp, record.key, record.value, record.headers)
        count += 1
    if base_timestamp is None or count == 0:
        raise ValueError("a batch needs at least one record")
    attributes = compression | (timestamp_type << 3)
    attributes |= (TRANSACTIONAL_MASK if transactional else 0) | (CONTROL_MASK if control else 0)
    attributes |= DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0
    return assemble_batch(
        payload,
        count,
        base_offset=base_offset,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=log_append_time if timestamp_type == LOG_APPEND_TIME else max_timestamp,
        attributes=attributes,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        level=level,
    )


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without records that keeps offsets, producer and sequence of `header`: what compaction leaves behind
    so that a producer's last sequence survives."""
    return assemble_batch(
        b"",
        0,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & ~(7 | DELETE_HORIZON_MASK),
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def control_key(control_type: int, version: int = 0) -> bytes:
    return _CONTROL_KEY.pack(version, control_type)


def parse_control_key(key: bytes | None) -> tuple[int, int]:
    """Version and type of a control record's key. The type may be one that this version does not know."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise invalid_record("Invalid value size found for control record key. Must have at least 4 bytes")
    version, control_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise invalid_record(f"Invalid version found for control record: {version}. May indicate data corruption")
    return version, control_type


def build_end_txn_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction on one partition."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    record = SimpleRecord(timestamp, key, _END_TXN_VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """The marker in a control record; None for control records that end no transaction."""
    _, control_type = parse_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise invalid_record("Invalid value size found for end transaction marker")
    return EndTxnMarker(ControlType(control_type), _END_TXN_VALUE.unpack_from(record.value)[1])


def _write_nullable(out: bytearray, data: Buffer | None) -> None:
    if data is None:
        out.append(1)
        return
    view = memoryview(data)
    write_varint(out, view.nbytes)
    out += view
