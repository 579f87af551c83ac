"""The order in which Java walks a HashMap: Kafka's assignors go through members and partitions in it, its controller
through the settings of a request.

Following it makes both servers give the same member the same partitions, and name the same setting as wrong. Within one bucket the order of insertion
counts, which callers keep as far as they can; a tree of many colliding keys is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from ottla.model.ids import Uuid

ItemT = TypeVar("ItemT")
MapT = TypeVar("MapT", bound=tuple[tuple[str, str | None], ...])

_MIN_CAPACITY = 16
_LOAD_FACTOR = 0.75
_M32 = 0xFFFFFFFF
_SIGN_BIT = 1 << 31


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32-bit arithmetic, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & _M32
    return value - (1 << 32) if value & _SIGN_BIT else value


def strings_in_java_order(items: Iterable[str], *, initial_capacity: int = 0) -> list[str]:
    """`initial_capacity`: of a map that was made with one."""
    return _in_java_order(items, java_hash, initial_capacity=initial_capacity)


def maps_by_bucket(items: Iterable[MapT], capacity: int) -> list[MapT]:
    """Objects whose hash is Objects.hash of one map, which is given by its entries, in a map of this capacity."""
    return sorted(items, key=lambda entries: _spread(31 + _map_hash(entries)) & capacity - 1)


def map_capacity(size: int, initial_capacity: int) -> int:
    """Of a map that was made with `initial_capacity` and got `size` entries."""
    return _capacity(size, copied=False, initial=initial_capacity)


def longs_in_java_order(items: Iterable[int]) -> list[int]:
    return _in_java_order(items, lambda number: (number >> 32 ^ number) & _M32)


def uuids_in_java_order(items: Iterable[Uuid]) -> list[Uuid]:
    return _in_java_order(items, _uuid_hash)


def partitions_in_java_order(items: Iterable[int]) -> list[int]:
    return _in_java_order(items, lambda partition: partition, copied=True)


def _in_java_order(
    items: Iterable[ItemT], hash_of: Callable[[ItemT], int], *, copied: bool = False, initial_capacity: int = 0
) -> list[ItemT]:
    elements = list(items)
    mask = _capacity(len(elements), copied=copied, initial=initial_capacity) - 1
    return sorted(elements, key=lambda item: _spread(hash_of(item)) & mask)


def _capacity(size: int, *, copied: bool, initial: int) -> int:
    """A map that grew by insertion is at most three quarters full; one made from a collection takes a little more."""
    capacity = 1 << (initial - 1).bit_length() if initial else _MIN_CAPACITY
    min_capacity = int(size / _LOAD_FACTOR) + 1 if copied else size / _LOAD_FACTOR
    while capacity < min_capacity:
        capacity *= 2
    return capacity


def _spread(value: int) -> int:
    value &= _M32
    return value ^ value >> 16


@lru_cache(maxsize=1 << 16)
def _map_hash(entries: tuple[tuple[str, str | None], ...]) -> int:
    return sum((java_hash(key) ^ (0 if value is None else java_hash(value))) & _M32 for key, value in entries)


def _uuid_hash(uuid: Uuid) -> int:
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32 ^ mixed) & _M32
