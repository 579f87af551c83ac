"""The walk over an Avro payload before fastavro sees it: depth, number of values, lengths. Nothing is built.

The walk is as strict as the specification. An impossible count, index or length ends the walk, and so does a block
whose size is not the size of its items. So the walk is always at the same byte as fastavro, whether fastavro reads a
value or skips the value.
"""

from __future__ import annotations

from ottla.payloads.avro_shape import (
    ARRAY,
    BYTES,
    DECIMAL,
    FREE_VALUES,
    MAP,
    MAX_DECIMAL_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    PLAIN,
    RECORD,
    UNION,
    VALUES_A_BYTE,
    AvroLimitError,
    AvroShape,
)

_LONG_BITS = 64
_DECIMAL_SHIFT = 8
"""A decimal of 4 kB takes the time of 65,536 values."""


def walk(root: AvroShape, data: bytes) -> int:
    """The number of bytes that the value takes; AvroLimitError when it is no value of the schema or breaks a limit."""
    try:
        return _Walk(data).value(root, 0, 0)
    except IndexError:
        raise AvroLimitError("the payload ends inside its value") from None
    except RecursionError:
        raise AvroLimitError(f"the payload nests more than {MAX_DEPTH} values") from None


class _Walk:
    __slots__ = ("_data", "_limit", "_size", "_values_left")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size = len(data)
        self._limit = self._values_left = min(MAX_VALUES, FREE_VALUES + VALUES_A_BYTE * self._size)

    def value(self, shape: AvroShape, pos: int, depth: int) -> int:
        self._take(1)
        kind = shape.kind
        if kind == PLAIN:
            return self._skip(pos, shape.size)
        if kind == RECORD:
            if depth >= MAX_DEPTH:
                raise AvroLimitError(f"the payload nests more than {MAX_DEPTH} values")
            for field in shape.inner:
                pos = self.value(field, pos, depth + 1)
            return pos
        if kind == UNION:
            index, pos = self._long(pos)
            if not 0 <= index < len(shape.inner):
                raise AvroLimitError(f"the union has no branch {index}")
            return self.value(shape.inner[index], pos, depth)
        if kind in {ARRAY, MAP}:
            return self._blocks(shape, pos, depth + 1)
        number, pos = self._long(pos)
        if kind in {BYTES, DECIMAL}:
            if kind == DECIMAL:
                if number > MAX_DECIMAL_BYTES:
                    raise AvroLimitError(f"a decimal has {number} bytes; the limit is {MAX_DECIMAL_BYTES}")
                self._take(number * number >> _DECIMAL_SHIFT)
            return self._skip(pos, number)
        return pos

    def _blocks(self, shape: AvroShape, pos: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise AvroLimitError(f"the payload nests more than {MAX_DEPTH} values")
        item = shape.inner[0]
        keyed = shape.kind == MAP
        while True:
            count, pos = self._long(pos)
            if count == 0:
                return pos
            end = -1
            if count < 0:
                count = -count
                size, pos = self._long(pos)
                end = self._skip(pos, size)
            if item.kind == PLAIN and not keyed:
                self._take(count)
                pos = self._skip(pos, count * item.size)
            else:
                pos = self._items(item, count, pos, depth, keyed=keyed)
            if end not in {-1, pos}:
                raise AvroLimitError("a block's size is not that of its items")

    def _items(self, item: AvroShape, count: int, pos: int, depth: int, *, keyed: bool) -> int:
        if count > self._values_left:
            raise self._too_many()
        for _ in range(count):
            if keyed:
                length, pos = self._long(pos)
                pos = self._skip(pos, length)
                self._take(1)
            pos = self.value(item, pos, depth)
        return pos

    def _take(self, count: int) -> None:
        self._values_left -= count
        if self._values_left < 0:
            raise self._too_many()

    def _skip(self, pos: int, length: int) -> int:
        if length < 0 or pos + length > self._size:
            raise AvroLimitError(f"a length of {length} bytes where {self._size - pos} are left")
        return pos + length

    def _long(self, pos: int) -> tuple[int, int]:
        data = self._data
        byte = data[pos]
        pos += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), pos
        raw = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            byte = data[pos]
            pos += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if raw >> _LONG_BITS or shift > _LONG_BITS + 6:
                raise AvroLimitError("a number has more than 64 bits")
        return (raw >> 1) ^ -(raw & 1), pos

    def _too_many(self) -> AvroLimitError:
        return AvroLimitError(f"the payload has more than {self._limit} values")
