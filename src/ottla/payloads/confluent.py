"""Confluent's wire format: how the bytes of a key or a value name their schema.

- A zero byte, the schema's id in four bytes (big-endian), then the data.
- Before a Protobuf message stand its message indexes: the path to the message's type in its file. The path is a zigzag
  varint with the count, then an index each. A single zero byte stands for the file's first message.
- A record may name its schema in a header instead: a byte 1 and the schema's guid in sixteen bytes. The data then has no
  prefix.

Only this module reads and writes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
FIRST_MESSAGE = b"\0"
"""The message indexes of the first message of a Protobuf file."""
_PREFIX = struct.Struct(">BI")
_MAX_INDEXES = 100
"""Protobuf messages nested in each other. Protobuf's own parsers stop at 100."""
_MAX_SHIFT = 63


class SchemaFramingError(ValueError):
    """The bytes are not in Confluent's wire format."""


def is_framed(data: bytes) -> bool:
    return len(data) >= _PREFIX.size and data[0] == 0


def framed(schema_id: int, data: bytes) -> bytes:
    return _PREFIX.pack(0, schema_id) + data


def unframed(data: bytes) -> tuple[int, bytes]:
    """The schema's id and the data after the prefix; SchemaFramingError if there is no prefix."""
    if not is_framed(data):
        raise SchemaFramingError("the data does not begin with a zero byte and a schema id")
    return _PREFIX.unpack_from(data)[1], data[_PREFIX.size :]


def guid_in_header(value: bytes | None) -> str:
    """The guid that a header KEY_HEADER or VALUE_HEADER holds; SchemaFramingError for any other value."""
    if value is None or len(value) != 17 or value[0] != 1:
        raise SchemaFramingError("the header does not hold the guid of a schema")
    return str(UUID(bytes=bytes(value[1:])))


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The message indexes before a Protobuf message, and where the message begins; SchemaFramingError if there are none."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MAX_INDEXES:
        raise SchemaFramingError(f"{count} message indexes: a Protobuf message has between 1 and {_MAX_INDEXES}")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        if index < 0:
            raise SchemaFramingError(f"the message index {index} is negative")
        indexes.append(index)
    return tuple(indexes), position


def indexes_prefix(indexes: Sequence[int]) -> bytes:
    """What stands before a Protobuf message."""
    if tuple(indexes) == (0,):
        return FIRST_MESSAGE
    out = bytearray()
    for number in (len(indexes), *indexes):
        raw = number << 1
        while raw > 0x7F:
            out.append((raw & 0x7F) | 0x80)
            raw >>= 7
        out.append(raw)
    return bytes(out)


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    shift = raw = 0
    while position < len(data):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift > _MAX_SHIFT:
            raise SchemaFramingError("a message index is longer than ten bytes")
    raise SchemaFramingError("the value ends inside its message indexes")
