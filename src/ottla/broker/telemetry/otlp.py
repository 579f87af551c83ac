"""The little of OpenTelemetry's metrics format that clients push (KIP-714): names and numbers, without a library.

A message is a tree of Protobuf fields; what is not known is skipped, what is broken is a ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_POINTS = 5_000
"""In one message."""


class Point(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool


def points(data: bytes) -> list[Point]:
    """The numbers of a MetricsData message; histograms are left out."""
    numbers: list[Point] = []
    try:
        for resource_metrics in _children(data, 1):
            for scope_metrics in _children(resource_metrics, 2):
                for metric in _children(scope_metrics, 2):
                    numbers += _metric(metric)
                    if len(numbers) > _MAX_POINTS:
                        raise ValueError(f"more than {_MAX_POINTS} numbers in one message")
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not OpenTelemetry metrics: {error}") from error
    return numbers


def _metric(data: bytes) -> list[Point]:
    name = next((value.decode() for number, value in _fields(data) if number == 1 and isinstance(value, bytes)), "")
    numbers = []
    for kind in (5, 7):  # gauge, sum
        for body in _children(data, kind):
            temporality = next((value for number, value in _fields(body) if number == 2 and isinstance(value, int)), 0)
            numbers += [_point(name, point, is_delta=kind == 7 and temporality == 1) for point in _children(body, 1)]
    return numbers


def _point(name: str, data: bytes, *, is_delta: bool) -> Point:
    value, labels = 0.0, []
    for number, field in _fields(data):
        if number == 4 and isinstance(field, int):
            value = struct.unpack("<d", struct.pack("<Q", field))[0]
        elif number == 6 and isinstance(field, int):
            value = float(struct.unpack("<q", struct.pack("<Q", field))[0])
        elif number == 7 and isinstance(field, bytes):
            labels.append(_label(field))
    return Point(name, tuple(sorted(labels)), value, is_delta)


def _label(data: bytes) -> tuple[str, str]:
    key, text = "", ""
    for number, field in _fields(data):
        if number == 1 and isinstance(field, bytes):
            key = field.decode()
        elif number == 2 and isinstance(field, bytes):
            for kind, value in _fields(field):
                text = value.decode() if kind == 1 and isinstance(value, bytes) else str(value)
    return key, text


def _children(data: bytes, field_number: int) -> Iterator[bytes]:
    return (value for number, value in _fields(data) if number == field_number and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
        elif kind == _FIXED64:
            yield tag >> 3, struct.unpack_from("<Q", data, position)[0]
            position += 8
        elif kind == _FIXED32:
            yield tag >> 3, struct.unpack_from("<I", data, position)[0]
            position += 4
        elif kind == _BYTES:
            size, position = _varint(data, position)
            if position + size > len(data):
                raise ValueError("a field is longer than its message")
            yield tag >> 3, data[position : position + size]
            position += size
        else:
            raise ValueError(f"wire type {kind} is not known")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 63:
            raise ValueError("a varint is too long")
