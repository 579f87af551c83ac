"""What the generated codec stands on: variable-length integers, tagged fields, errors and the Struct base.

Readers take a buffer and a position and return the value and the new position. Writers append byte pieces to a list, so
that a fetch response can carry file regions between its pieces. This module does not depend on any message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

from ottla.model.pace import charge

Source: TypeAlias = "bytes | bytearray | memoryview[int]"
Pieces: TypeAlias = "list[Any]"
"""Byte pieces of an encoded message; a records field may be any object with a length (a file region)."""

MAX_STRING = 0x7FFF
MAX_TAGS = 256
"""Tagged fields of one struct. Kafka's schemas have five at most."""

EMPTY: Any = ()
"""Stands for "a fresh default" (a list or a struct) in constructors, where None would be a value of its own."""


class DecodeError(ValueError):
    """The bytes are not a message of this schema and version."""


def truncated() -> NoReturn:
    raise DecodeError("the message ends in the middle of a field")


def unexpected_null(field: str) -> NoReturn:
    raise DecodeError(f"non-nullable field {field} was serialized as null")


def bad_length(field: str, length: int) -> NoReturn:
    raise DecodeError(f"field {field} had invalid length {length}")


class Struct:
    """A generated structure: slots are its fields, in schema order."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({fields})"


_DECODE_FAILURES = (IndexError, struct.error, OverflowError)


class Message(Struct):
    """A top-level generated message: one reader and one writer for each version."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    READERS: ClassVar[dict[int, Callable[[Any, int], tuple[Any, int]]]]
    WRITERS: ClassVar[dict[int, Callable[[Any, Pieces], None]]]

    @classmethod
    def decode(cls, buf: Source, pos: int, version: int) -> tuple[Self, int]:
        """The message at `pos` and the position after it; DecodeError when the bytes do not fit the schema."""
        reader = cls.READERS.get(version)
        if reader is None:
            raise DecodeError(f"{cls.__name__} has no version {version}")
        try:
            message, end = reader(buf, pos)
        except _DECODE_FAILURES as error:
            raise DecodeError(f"{cls.__name__} v{version}: {error}") from error
        return message, end

    def encode(self, out: Pieces, version: int) -> None:
        """Append this message's bytes to `out`; KeyError when the version does not exist."""
        self.WRITERS[version](self, out)

    def to_bytes(self, version: int) -> bytes:
        out: Pieces = []
        self.WRITERS[version](self, out)
        return b"".join(out)


UVARINT = tuple(bytes((n,)) for n in range(128))
"""The one-byte encodings; longer ones come from `uvarint`."""


def uvarint(value: int) -> bytes:
    if value < 128:
        return UVARINT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uvarint_rest(buf: Source, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte had its continuation bit set; at most five bytes in all.

    Each such varint is a length, a count or a tag, which Kafka keeps in an int. A varint above the range of an int is
    refused here; Kafka would read a negative number.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0x7FFFFFFF:
                raise DecodeError("a varint is over 2147483647")
            return value, pos
        shift += 7
        if shift > 28:
            raise DecodeError("a varint has more than five bytes")


def read_uvarint(buf: Source, pos: int) -> tuple[int, int]:
    first = buf[pos]
    if first < 128:
        return first, pos + 1
    return uvarint_rest(buf, pos + 1, first)


def tag_numbers(count: int) -> range:
    """For a loop over the tagged fields of a struct."""
    if count > 1:
        if count > MAX_TAGS:
            raise DecodeError(f"a struct has {count} tagged fields")
        charge(count)
    return range(count)


def skip_tags(buf: Source, pos: int) -> int:
    """Skip the tagged fields at `pos`; this version of the schema has none of them."""
    count, pos = read_uvarint(buf, pos)
    for _ in tag_numbers(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            truncated()
    return pos


def write_tags(out: Pieces, tags: list[tuple[int, bytes]]) -> None:
    out.append(uvarint(len(tags)))
    for tag, data in tags:
        out.append(uvarint(tag))
        out.append(uvarint(len(data)))
        out.append(data)
