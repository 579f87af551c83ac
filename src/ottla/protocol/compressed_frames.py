"""Where a frame of zstd or LZ4 ends, from its block headers alone. The libraries do not report that position.

python-zstandard's reader ends quietly where the data ends, and cramjam refuses bytes after an LZ4 frame. Apache Kafka
refuses the first and does not look at the second.
"""

from __future__ import annotations

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
_RLE = 1


def zstd_is_whole(data: memoryview) -> bool:
    """Whether every frame in `data` ends there; the data was decompressed without an error before."""
    pos = 0
    while pos < len(data):
        if bytes(data[pos + 1 : pos + 4]) == _SKIPPABLE_MAGIC:
            pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
        else:
            pos = _after_zstd_frame(data, pos)
    return pos == len(data)


def _after_zstd_frame(data: memoryview, pos: int) -> int:
    """Beyond the end of `data` when the frame is cut off."""
    if bytes(data[pos : pos + 4]) != _ZSTD_MAGIC or pos + 5 > len(data):
        return len(data) + 1
    flags = data[pos + 4]
    single_segment = flags >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[flags >> 6]
    pos += 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size
    while pos + 3 <= len(data):
        block = int.from_bytes(data[pos : pos + 3], "little")
        pos += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
        if block & 1:
            return pos + (4 if flags & 4 else 0)
    return len(data) + 1


def lz4_frame_end(data: memoryview) -> int:
    """The size of the first frame in `data`; that of `data` when it has no end."""
    if len(data) < 7:
        return len(data)
    flags = data[4]
    pos = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while pos + 4 <= len(data):
        block = int.from_bytes(data[pos : pos + 4], "little")
        pos += 4
        if block == 0:
            return min(pos + (4 if flags & 0x04 else 0), len(data))
        pos += (block & 0x7FFFFFFF) + (4 if flags & 0x10 else 0)
    return len(data)
