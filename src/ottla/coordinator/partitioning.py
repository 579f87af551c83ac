"""Which partition of an internal topic belongs to a key: Java's String.hashCode, as every Kafka broker computes it."""

from __future__ import annotations

from functools import lru_cache

from ottla.model.java_order import java_hash

_SIGN_BIT = 1 << 31


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    return _abs(java_hash(key)) % partitions


def _abs(value: int) -> int:
    """Kafka's Utils.abs: the one negative number without a positive twin becomes 0."""
    return 0 if value == -_SIGN_BIT else abs(value)
