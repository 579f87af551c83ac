"""The four codecs of Kafka's record batches, and the bound on what they may unpack to.

Codecs are loaded when the first batch needs one: the broker passes compressed batches through, so most processes never
import them. Decompression is streamed and stops at its limit: a small gzip bomb must not become its 200 MiB. Snappy is
read in Java's xerial framing as well as raw (librdkafka), and written in xerial framing, which every client reads.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.compressed_frames import lz4_frame_end

if TYPE_CHECKING:
    from typing_extensions import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = {"none": NONE, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Kafka's names for `compression.type` (and `uncompressed`, its word for "none" on a topic)."""

DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}

MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""socket.request.max.bytes: no producer could have sent more than this uncompressed."""

_CHUNK = 256 * 1024
_GZIP_SLICE = 4096
_ZSTD_SLICE = 16 * 1024
_MAX_ZSTD_FRAMES = 10_000
"""A new frame costs 10 us of CPU time, however little is in the frame; clients write a single frame for a batch."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_LZ4_MAX_RATIO = 256
_INT32 = Struct(">i")


_Read = Callable[[int], bytes]
"""A streaming decompressor: takes at most so many bytes of output; nothing at the end."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` as Kafka's compression.<codec>.level; None is the codec's default. Snappy has none."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    if codec == GZIP:
        packer = zlib.compressobj(level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        return _compress_lz4(data, level)
    if codec == ZSTD:
        return _compress_zstd(data, level)
    raise unknown_codec(codec)


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The unpacked bytes; INVALID_RECORD when they are more than `limit`, UNKNOWN_SERVER_ERROR when the data is not of
    this codec (both are Kafka's answers)."""
    if codec == SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == LZ4:
        return _decompress_lz4(data, limit)
    opener = _OPENERS.get(codec)
    if opener is None:
        raise unknown_codec(codec)
    read, failures = opener(data)
    pieces: list[bytes] = []
    total = 0
    try:
        while piece := read(min(_CHUNK, limit + 1 - total)):
            pieces.append(piece)
            total += len(piece)
            if total > limit:
                raise too_large(limit)
    except failures as problem:
        raise undecodable(problem) from problem
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def unknown_codec(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")


class TooLargeError(KafkaError):
    """The batch decompresses to more than the reader allows."""


def too_large(limit: int) -> TooLargeError:
    return TooLargeError(ErrorCode.INVALID_RECORD, f"The batch decompresses to more than {limit} bytes")


def undecodable(problem: BaseException) -> KafkaError:
    """Kafka has no code of its own for this: -1 is what a producer gets."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The compressed records cannot be read: {problem}")


def _open_gzip(data: Buffer) -> tuple[_Read, tuple[type[Exception], ...]]:
    """Zlib copies what it leaves at each step, so it gets a slice at a time: 50,000 empty members took 5 s otherwise."""
    unpacker = zlib.decompressobj(31)
    view = memoryview(data).cast("B")
    at = 0

    def read(size: int) -> bytes:
        nonlocal at, unpacker
        while True:
            if unpacker.eof:
                # A gzip stream may have several members (Java's GZIPInputStream reads them all).
                if bytes(view[at : at + 2]) != b"\x1f\x8b":
                    return b""
                unpacker = zlib.decompressobj(31)
            compressed = view[at : at + _GZIP_SLICE]
            piece = unpacker.decompress(compressed, size)
            at += len(compressed) - len(unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail)
            if piece:
                return piece
            if not compressed and not unpacker.eof:
                raise zlib.error("incomplete gzip data")

    return read, (zlib.error,)


def _zstd() -> Any:
    """Python 3.14's own module, and the same module for older versions."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _compress_zstd(data: Buffer, level: int) -> bytes:
    zstd = _zstd()
    options = {zstd.CompressionParameter.compression_level: level, zstd.CompressionParameter.content_size_flag: 0}
    packed: bytes = zstd.compress(data, options=options)
    return packed


def _open_zstd(data: Buffer) -> tuple[_Read, tuple[type[Exception], ...]]:
    """A slice at a time, as for gzip: what follows a frame is copied at its end."""
    zstd = _zstd()
    unpacker = zstd.ZstdDecompressor()
    view = memoryview(data).cast("B")
    at = 0
    frames = 1

    def read(size: int) -> bytes:
        nonlocal at, unpacker, frames
        while True:
            if unpacker.eof or not view:
                if at == len(view):
                    return b""
                if frames == _MAX_ZSTD_FRAMES:
                    raise EOFError(f"more than {_MAX_ZSTD_FRAMES} zstd frames in a batch")
                frames += 1
                unpacker = zstd.ZstdDecompressor()
            compressed = view[at : at + _ZSTD_SLICE] if unpacker.needs_input else b""
            piece: bytes = unpacker.decompress(compressed, size)
            at += len(compressed) - len(unpacker.unused_data if unpacker.eof else b"")
            if piece:
                return piece
            if at == len(view) and unpacker.needs_input and not unpacker.eof:
                raise EOFError("the zstd data is cut off")

    return read, (zstd.ZstdError, EOFError)


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    """One buffer of the most that LZ4 could expand to, at most `limit`: its untouched pages cost nothing."""
    import cramjam

    view = memoryview(data).cast("B")
    room = min(limit, _LZ4_MAX_RATIO * len(view))
    with mmap(-1, max(room, 1)) as out:
        try:
            size = cramjam.lz4.decompress_into(view[: lz4_frame_end(view)], out)
        except cramjam.DecompressionError as problem:
            raise (too_large(limit) if room == limit else undecodable(problem)) from problem
        return out[:size]


def _compress_lz4(data: Buffer, level: int) -> bytes:
    import cramjam

    # Java's Lz4BlockInputStream refuses frames whose blocks depend on each other.
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return bytes(packer.finish())


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data).cast("B")
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += (_INT32.pack(len(block)), block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data).cast("B")
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, limit, limit)
    pos = len(_XERIAL_HEADER)
    pieces: list[bytes] = []
    room = limit
    while pos < len(view):
        length = int.from_bytes(view[pos : pos + 4], "big", signed=True)
        pos += 4
        if length < 0 or pos + length > len(view):
            raise undecodable(ValueError(f"a snappy block of {length} bytes"))
        piece = _decompress_raw_snappy(view[pos : pos + length], room, limit)
        room -= len(piece)
        pieces.append(piece)
        pos += length
    return b"".join(pieces)


def _decompress_raw_snappy(view: memoryview, room: int, limit: int) -> bytes:
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(view) > room:
            raise too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as problem:
        raise undecodable(problem) from problem


_OPENERS: dict[int, Callable[[Buffer], tuple[_Read, tuple[type[Exception], ...]]]] = {
    GZIP: _open_gzip,
    ZSTD: _open_zstd,
}
