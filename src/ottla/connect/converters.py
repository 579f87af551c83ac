"""Converters: plain Python values to a record's bytes and back, with Kafka Connect's names.

`key.converter` and `value.converter` are `string`, `json`, `bytes` or `avro` (or Connect's class names that end so).
`json` may wrap values in schema and payload (`schemas.enable`); `avro` needs `schema.registry.url`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.tables.topics import TableError

_NAMES = {
    "StringConverter": "string",
    "JsonConverter": "json",
    "ByteArrayConverter": "bytes",
    "AvroConverter": "avro",
}


class ConvertError(ValueError):
    """A value that the converter cannot read or write."""


class Converter(NamedTuple):
    write: Callable[[str, Any], bytes | None]
    """The bytes of a value for a topic."""
    read: Callable[[bytes | None], Any]


def converter(config: Mapping[str, str], side: str) -> Converter:
    """For `side` key or value."""
    given = config.get(f"{side}.converter", "json" if side == "value" else "string")
    kind = _NAMES.get(given.rpartition(".")[2], given)
    if kind == "bytes":
        return Converter(_bytes_out, lambda data: data)
    if kind == "string":
        return Converter(_string_out, lambda data: None if data is None else data.decode(errors="replace"))
    if kind == "json":
        wrapped = config.get(f"{side}.converter.schemas.enable", "false").lower() == "true"
        return Converter(_json_out, lambda data: _json_in(data, wrapped=wrapped))
    if kind == "avro":
        from ottla.connect.avro import avro_converter

        return avro_converter(config, side)
    raise TableError(f"{side}.converter is string, json, bytes or avro, not {given!r}")


def _bytes_out(_topic: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise ConvertError(f"a {type(value).__name__} is no bytes")


def _string_out(_topic: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, default=plain).encode()
    return str(value).encode()


def _json_out(_topic: str, value: Any) -> bytes | None:
    return None if value is None else json.dumps(value, default=plain).encode()


def _json_in(data: bytes | None, *, wrapped: bool) -> Any:
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError as problem:
        raise ConvertError(f"the value is no JSON: {problem}") from problem
    return value.get("payload") if wrapped and isinstance(value, dict) else value


def plain(value: Any) -> Any:
    """What JSON has no word for: bytes become base64, times and decimals text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
