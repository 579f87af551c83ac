"""Converters: plain Python values to a record's bytes and back, with Kafka Connect's names.

`key.converter` and `value.converter` are `string`, `json`, `bytes`, `avro`, or one of the numbers `short`, `integer`, `long`,
`float`, `double` and `boolean` (or Connect's class names that end so). `json` may wrap values in schema and payload
(`schemas.enable`); `avro` needs `schema.registry.url`.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.model.user_error import UserError
from ottla.payloads.json_text import read_json

_NUMBERS = {"short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d", "boolean": ">?"}
_NAMES = {
    "StringConverter": "string",
    "JsonConverter": "json",
    "ByteArrayConverter": "bytes",
    "AvroConverter": "avro",
} | {f"{name.capitalize()}Converter": name for name in _NUMBERS}


class ConvertError(ValueError):
    """A value that the converter cannot read or write."""


class Converter(NamedTuple):
    write: Callable[[str, Any], bytes | None]
    """The bytes of a value for a topic."""
    read: Callable[[bytes | None], Any]


def converter(config: Mapping[str, str], side: str) -> Converter:
    """For `side` key or value."""
    converter = config.get(f"{side}.converter", "json" if side == "value" else "string")
    kind = _NAMES.get(converter.rpartition(".")[2], converter)
    if kind == "bytes":
        return Converter(_bytes_out, lambda data: data)
    if kind == "string":
        return Converter(_string_out, lambda data: None if data is None else data.decode(errors="replace"))
    if kind == "json":
        wrapped = config.get(f"{side}.converter.schemas.enable", "false").lower() == "true"
        return Converter(
            lambda _topic, value: _json_out(value, wrapped=wrapped), lambda data: _json_in(data, wrapped=wrapped)
        )
    if kind in _NUMBERS:
        return _number(kind, struct.Struct(_NUMBERS[kind]))
    if kind == "avro":
        from ottla.connect.avro import avro_converter

        return avro_converter(config, side)
    raise UserError(f"{side}.converter is string, json, bytes, avro or one of {', '.join(_NUMBERS)}, not {converter!r}")


def _number(kind: str, form: struct.Struct) -> Converter:
    """Big-endian, as Kafka's own serializers write numbers."""

    def write(_topic: str, value: Any) -> bytes | None:
        try:
            return None if value is None else form.pack(value)
        except struct.error as problem:
            raise ConvertError(f"{value!r} is not a valid {kind}: {problem}") from problem

    def read(data: bytes | None) -> Any:
        try:
            return None if data is None else form.unpack(data)[0]
        except struct.error as problem:
            raise ConvertError(f"{len(data or b'')} bytes are no {kind}: {problem}") from problem

    return Converter(write, read)


def _bytes_out(_topic: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise ConvertError(f"a {type(value).__name__} is not bytes")


def _string_out(_topic: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list):
        return _dumped(value)
    return str(value).encode()


def _json_out(value: Any, *, wrapped: bool) -> bytes | None:
    if wrapped:
        return None if value is None else _dumped({"schema": None, "payload": value})
    return None if value is None else _dumped(value)


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value, default=plain, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_without_nan(value), default=plain).encode()


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity; Connect's converter writes them as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return [_without_nan(inner) for inner in value] if isinstance(value, list | tuple) else value


def _json_in(data: bytes | None, *, wrapped: bool) -> Any:
    if data is None:
        return None
    try:
        value = read_json(data)
    except ValueError as problem:
        raise ConvertError(f"the value is not JSON: {problem}") from problem
    if not wrapped:
        return value
    if not isinstance(value, dict) or set(value) != {"schema", "payload"}:
        raise ConvertError("schemas.enable wants a JSON object of schema and payload and nothing else; set it to false")
    return value["payload"]


def plain(value: Any) -> Any:
    """What JSON has no word for: bytes become base64, times and decimals text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
