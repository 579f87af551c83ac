"""Records of internal topics as JSON: offsets, group metadata, transactions (KIP-1146's forms)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, BinaryIO

from ottla.cli.kafka.formatters import PrintedRecord
from ottla.model.ids import Uuid, uuid_to_str
from ottla.protocol.primitives import DecodeError, Struct

_KINDS: dict[str, dict[int, tuple[str, str]]] = {
    "OffsetsMessageFormatter": {
        0: ("offset_commit_key", "offset_commit_value"),
        1: ("offset_commit_key", "offset_commit_value"),
    },
    "GroupMetadataMessageFormatter": {2: ("group_metadata_key", "group_metadata_value")},
    "TransactionLogMessageFormatter": {0: ("transaction_log_key", "transaction_log_value")},
}


def internal_formatter(name: str) -> Callable[[PrintedRecord, BinaryIO], None]:
    kinds = _KINDS[name]

    def write(record: PrintedRecord, out: BinaryIO) -> None:
        if record.key is None or len(record.key) < 2:
            return
        (kind,) = struct.unpack_from(">h", record.key)
        if kind not in kinds:
            return
        key_module, value_module = kinds[kind]
        key = {"type": kind, "data": _decoded(key_module, record.key, 0)}
        value: dict[str, Any] | None = None
        if record.value is not None and len(record.value) >= 2:
            (version,) = struct.unpack_from(">h", record.value)
            value = {"version": version, "data": _decoded(value_module, record.value, version)}
        out.write(json.dumps({"key": key, "value": value}, separators=(",", ":")).encode())

    return write


def _decoded(module: str, data: bytes, version: int) -> Any:
    name = "".join(word.capitalize() for word in module.split("_"))
    message = getattr(import_module(f"ottla.protocol.generated.{module}"), name)
    try:
        decoded, _ = message.decode(data, 2, version)
    except DecodeError:
        return "unknown"
    return jsonable(decoded)


def jsonable(value: Any, name: str = "") -> Any:
    """A generated struct as Kafka's own JSON has it: camelCase names, ids as text, bytes as base64."""
    if isinstance(value, Struct):
        fields = [field for kind in reversed(type(value).__mro__) for field in getattr(kind, "__slots__", ())]
        return {_camel(field): jsonable(getattr(value, field), field) for field in fields}
    if isinstance(value, list):
        return [jsonable(item, name) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        if len(data) == 16 and name.endswith(("id", "ids", "directories", "dirs")):
            return uuid_to_str(Uuid(data))
        import base64

        return base64.b64encode(data).decode()
    return value


def _camel(name: str) -> str:
    first, *later_words = name.split("_")
    return first + "".join(word.capitalize() for word in later_words)
