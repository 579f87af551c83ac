"""From bytes to what a person can read: by the registry's schema where one is named, else as JSON, text or hex.

Decoding never fails: bytes that are not what they claim are shown as hex, with the reason beside them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any

from ottla.console.errors import ConsoleError
from ottla.console.messages.protobuf import decode_protobuf
from ottla.console.registry_client import ConsoleRegistry
from ottla.console.settings import MAX_SHOWN_BYTES
from ottla.payloads.avro import AvroReader
from ottla.payloads.confluent import is_framed, unframed
from ottla.payloads.json_text import read_json

FORMATS = ("auto", "text", "json", "registry", "hex", "int", "base64")


@dataclass(frozen=True, slots=True)
class Decoded:
    kind: str
    """null, json, text, hex, avro, protobuf, json-schema, int, base64"""
    text: str
    tree: Any = None
    """The value as JSON-like data, where there is one."""
    note: str = ""

    @property
    def line(self) -> str:
        """One line for a table."""
        return " ".join(self.text.split())[:400]


class Decoder:
    def __init__(self, registry: ConsoleRegistry, how: str = "auto") -> None:
        if how not in FORMATS:
            raise ConsoleError(f"unknown format {how!r}; one of {', '.join(FORMATS)}")
        self._registry = registry
        self._how = how
        self._ways: dict[str, Callable[[bytes], Decoded]] = {
            "auto": self._auto,
            "text": self._text,
            "json": self._json,
            "registry": self._by_registry,
            "hex": _hex,
            "int": _int,
            "base64": _base64,
        }

    def decode(self, data: bytes | None) -> Decoded:
        if data is None:
            return Decoded("null", "null")
        return self._ways[self._how](data)

    def _auto(self, data: bytes) -> Decoded:
        if is_framed(data) and self._registry.configured:
            decoded = self._by_registry(data)
            if not decoded.note:
                return decoded
        if data[:1] in b"{[" and len(data) > 1:
            decoded = self._json(data)
            if not decoded.note:
                return decoded
        return self._text(data)

    def _text(self, data: bytes) -> Decoded:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return _hex(data, "not UTF-8")
        if not _printable(text):
            return _hex(data, "")
        return Decoded("text", _cut(text))

    def _json(self, data: bytes) -> Decoded:
        try:
            tree = read_json(data)
        except ValueError as error:
            return _hex(data, f"not JSON: {error}") if self._how == "json" else Decoded("text", "", note="not JSON")
        return Decoded("json", pretty(tree), tree)

    def _by_registry(self, data: bytes) -> Decoded:
        if not is_framed(data):
            return _hex(data, "no schema id: the first byte is not 0")
        schema_id, payload = unframed(data)
        try:
            schema = self._registry.schema(schema_id)
            return _DECODERS[str(schema.get("schemaType", "AVRO"))](self._registry, schema_id, schema, payload)
        except (ConsoleError, *_BAD_DATA) as error:
            return _hex(data, f"schema {schema_id}: {error}")


_BAD_DATA = (
    ValueError, LookupError, ArithmeticError, AttributeError, EOFError, TypeError, struct.error, StopIteration,
    RecursionError,
)  # fmt: skip


def _avro(_registry: ConsoleRegistry, _schema_id: int, schema: dict[str, Any], data: bytes) -> Decoded:
    reader = schema.get("reader")
    if reader is None:
        dependencies = [json.loads(text) for text in schema["resolved"].values()]
        reader = schema["reader"] = AvroReader(json.loads(schema["schema"]), dependencies)
    tree = reader.read(data)
    return Decoded("avro", pretty(tree), tree, "")


def _json_schema(_registry: ConsoleRegistry, _schema_id: int, _schema: dict[str, Any], data: bytes) -> Decoded:
    tree = read_json(data)
    return Decoded("json-schema", pretty(tree), tree)


def _protobuf(registry: ConsoleRegistry, schema_id: int, schema: dict[str, Any], data: bytes) -> Decoded:
    tree = decode_protobuf(registry, schema_id, schema, data)
    return Decoded("protobuf", pretty(tree), tree)


_DECODERS = {"AVRO": _avro, "JSON": _json_schema, "PROTOBUF": _protobuf}


def _hex(data: bytes, note: str = "") -> Decoded:
    shown = data[: MAX_SHOWN_BYTES // 4]
    total = f" ... {len(data)} bytes in all" if len(data) > len(shown) else ""
    return Decoded("hex", shown.hex(" ") + total, note=note)


def _int(data: bytes) -> Decoded:
    if len(data) not in (1, 2, 4, 8):
        return _hex(data, f"{len(data)} bytes are not an integer of 1, 2, 4 or 8")
    number = int.from_bytes(data, "big", signed=True)
    return Decoded("int", str(number), number)


def _base64(data: bytes) -> Decoded:
    import base64

    return Decoded("base64", _cut(base64.b64encode(data).decode()))


def pretty(tree: Any) -> str:
    """On many lines, written up to what is shown: 1 MB of nested arrays would become 200 MB of indentation."""
    text = StringIO()
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=_odd).iterencode(tree):
        text.write(piece)
        if text.tell() > MAX_SHOWN_BYTES:
            return text.getvalue()[:MAX_SHOWN_BYTES] + f"\n... cut here, after {MAX_SHOWN_BYTES:,} characters"
    return text.getvalue()


def json_text(tree: Any) -> str:
    """On one line, as a record's value."""
    return json.dumps(tree, ensure_ascii=False, default=_odd)


def _odd(value: Any) -> str:
    """Bytes, decimals and times of Avro have no JSON form."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _printable(text: str) -> bool:
    return all(char.isprintable() or char in "\n\r\t" for char in text[:4096])


def _cut(text: str) -> str:
    if len(text) <= MAX_SHOWN_BYTES:
        return text
    return text[:MAX_SHOWN_BYTES] + f"\n... cut here: {len(text):,} characters in all"
