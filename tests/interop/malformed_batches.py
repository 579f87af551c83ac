"""Batches with a good header and CRC around records that cannot be read: one list, for both servers."""

from __future__ import annotations

import time

from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from ottla.protocol.records import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    pack_header,
    write_crc,
    write_varint,
)

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
_OVERLONG = b"\xff" * 10 + b"\x01"


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record(body: bytes, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


def fields(
    *, time_delta: bytes = b"\0", offset: bytes = b"\0", key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\0"
) -> bytes:  # fmt: skip
    return b"\0" + time_delta + offset + key + value + headers


def wrapped(body: bytes, count: int, codec: int) -> bytes:
    """A batch around bytes that are compressed already, or not at all."""
    now = time.time_ns() // 1_000_000
    header = BatchHeader(
        0, HEADER_BYTES - LOG_OVERHEAD + len(body), -1, MAGIC_V2, 0, codec, count - 1, now, now, -1, -1, -1, count
    )
    batch = bytearray(pack_header(header)) + body
    write_crc(batch, 0, len(batch))
    return bytes(batch)


GOOD = record(fields())
SECOND = record(fields(offset=b"\x02"))

PAYLOADS: dict[str, tuple[bytes, int]] = {
    "good": (GOOD, 1),
    "two good": (GOOD + SECOND, 2),
    "bytes after the last record": (GOOD + b"\0\0\0", 1),
    "fewer records than counted": (GOOD + GOOD, 3),
    "more records than counted": (GOOD + SECOND, 1),
    "a record longer than the batch": (record(fields(), 100), 1),
    "a record of negative length": (b"\x01" + fields(), 1),
    "a record shorter than its fields": (record(fields(), 5), 1),
    "a record longer than its fields": (record(fields() + b"\0\0"), 1),
    "an overlong time": (record(fields(time_delta=_OVERLONG)), 1),
    "an overlong offset": (record(fields(offset=_OVERLONG)), 1),
    "an offset of 64 bits": (record(fields(offset=b"\xff" * 9 + b"\x01")), 1),
    "an overlong length": (b"\xff" * 5 + b"\x01" + fields(), 1),
    "a key beyond the record": (record(fields(key=varint(50) + b"k")), 1),
    "a key of length -2": (record(fields(key=varint(-2))), 1),
    "a value beyond the record": (record(fields(value=varint(50) + b"v")), 1),
    "a value of length -2": (record(fields(value=varint(-2))), 1),
    "an overlong value length": (record(fields(value=_OVERLONG)), 1),
    "headers counted -1": (record(fields(headers=varint(-1))), 1),
    "headers counted beyond the record": (record(fields(headers=varint(1000))), 1),
    "a header without a key": (record(fields(headers=varint(1) + varint(-1) + varint(0))), 1),
    "a header value beyond the record": (record(fields(headers=varint(1) + varint(1) + b"h" + varint(50))), 1),
    "a header value of length -2": (record(fields(headers=varint(1) + varint(1) + b"h" + varint(-2))), 1),
    "a header key that is no UTF-8": (record(fields(headers=varint(1) + varint(1) + b"\xff" + varint(0))), 1),
    "the batch ends inside of a record": (GOOD + SECOND[:4], 2),
    "the same offset twice": (GOOD + GOOD, 2),
    "a first offset of 1": (SECOND, 1),
    "attributes of a record": (record(b"\x7f" + fields()[1:]), 1),
    "no bytes at all": (b"", 1),
    "zeros": (b"\0" * 20, 2),
    "ones": (b"\xff" * 40, 2),
}  # fmt: skip
"""Records, uncompressed, and how many the header counts."""


def walked() -> dict[str, bytes]:
    """Every payload in every codec."""
    return {
        f"{name}, {codec_name}": wrapped(compress(codec, payload) if codec else payload, count, codec)
        for name, (payload, count) in PAYLOADS.items()
        for codec_name, codec in CODECS.items()
    }


def unpackable() -> dict[str, bytes]:
    """Bytes that are not of the codec that the header names."""
    made: dict[str, bytes] = {}
    for codec_name, codec in CODECS.items():
        if codec == NONE:
            continue
        packed = compress(codec, GOOD * 50)
        made[f"garbage as {codec_name}"] = wrapped(b"\x5a" * 64, 1, codec)
        made[f"zeros as {codec_name}"] = wrapped(b"\0" * 64, 1, codec)
        made[f"plain records as {codec_name}"] = wrapped(GOOD, 1, codec)
        made[f"half of {codec_name}"] = wrapped(packed[: len(packed) // 2], 50, codec)
        made[f"{codec_name} without its last byte"] = wrapped(compress(codec, GOOD)[:-1], 1, codec)
        made[f"{codec_name} and garbage after it"] = wrapped(compress(codec, GOOD) + b"\x5a" * 8, 1, codec)
        made[f"one bit of {codec_name} is wrong"] = wrapped(_flipped(packed), 50, codec)
    for codec in (5, 6, 7):
        made[f"codec {codec}"] = wrapped(GOOD, 1, codec)
    return made


def _flipped(packed: bytes) -> bytes:
    at = len(packed) // 2
    return packed[:at] + bytes([packed[at] ^ 0x10]) + packed[at + 1 :]


def bomb(mebibytes: int, codec: int, *, records: int = 1) -> bytes:
    """Records that unpack to about so much: no key, a value of zeros."""
    size = mebibytes * 1024 * 1024 // records
    payload = bytearray()
    for index in range(records):
        payload += record(fields(offset=varint(index), key=b"\x02k", value=varint(size) + bytes(size)))
    return wrapped(compress(codec, payload), records, codec)
