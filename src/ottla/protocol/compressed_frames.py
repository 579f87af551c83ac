"""Where a frame of LZ4 ends, from its block headers alone: cramjam refuses bytes after the frame, Apache Kafka does not."""

from __future__ import annotations


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
