"""Which partition of an internal topic belongs to a key: Java's String.hashCode, as every Kafka broker computes it."""

from __future__ import annotations

from functools import lru_cache

_SIGN_BIT = 1 << 31
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    return _abs(java_hash(key)) % partitions


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32-bit arithmetic, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & _MASK
    return value - (1 << 32) if value & _SIGN_BIT else value


def _abs(value: int) -> int:
    """Kafka's Utils.abs: the one negative number without a positive twin becomes 0."""
    return 0 if value == -_SIGN_BIT else abs(value)
