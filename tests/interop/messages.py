"""The records that every client writes and reads: keys, headers, timestamps, nulls, empties, and a large one."""

from __future__ import annotations

import random
from typing import NamedTuple

T0 = 1_790_000_000_000
LARGE = random.Random(900).randbytes(900_000)  # does not compress
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = (0, 1, "all")


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


SENT = (
    Sent(b"key", b"value", (("a", b"1"), ("a", b"2"), ("empty", b"")), T0),
    Sent(None, b"no key", (), T0 + 1),
    Sent(b"", b"", (), T0 + 2),
    Sent(b"tombstone", None, (("why", "gel\u00f6scht".encode()),), T0 + 3),
    Sent(b"repetitive", b"over and over " * 1000, (), T0 + 2),  # out of order
    Sent(b"large", LARGE, (("size", b"900000"),), T0 + 4),
)
