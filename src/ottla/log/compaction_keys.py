"""The latest offset of each key, within a fixed budget of memory.

Short keys are stored unchanged; longer keys are stored as a digest of 17 bytes, which no short key can equal. When the
map is full, the pass ends there and the next pass continues from that offset: memory is bounded, and no work is lost.
"""

from __future__ import annotations

from hashlib import blake2b

from ottla.model.ids import Offset

LONGEST_PLAIN_KEY = 16
_DIGEST_BYTES = LONGEST_PLAIN_KEY + 1
BYTES_PER_KEY = 168
"""Measured on CPython 3.11: a bytes object of 17 (56), an int (32), its share of a dict just after growth (up to 80)."""


class OffsetMap:
    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes` is log.cleaner.dedupe.buffer.size: at least one key fits."""
        self.capacity = max(memory_bytes // BYTES_PER_KEY, 1)
        self.offsets: dict[bytes, Offset] = {}
        self.latest_offset: Offset = -1
        """The last offset that the map accounts for; records after it are kept whatever their key."""

    def __len__(self) -> int:
        return len(self.offsets)

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note `offset` as the latest of `key`; False when there is no room for another key."""
        offsets = self.offsets
        key = stand_in(key)
        if key not in offsets and len(offsets) >= self.capacity:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> Offset:
        """The latest offset of `key`, -1 when it is not in the map."""
        return self.offsets.get(stand_in(key), -1)


def stand_in(key: bytes) -> bytes:
    return key if len(key) <= LONGEST_PLAIN_KEY else blake2b(key, digest_size=_DIGEST_BYTES).digest()
