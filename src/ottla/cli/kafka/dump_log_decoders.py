"""What kafka-dump-log makes of the keys and values of internal topics."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from importlib import import_module

from ottla.cli.kafka.formatters_internal import jsonable
from ottla.cli.kafka.options import Options
from ottla.protocol.primitives import DecodeError

Decoded = Callable[[bytes | None, bytes | None], tuple[str | None, str | None]]
_OFFSETS = {
    0: ("offset_commit_key", "offset_commit_value"), 1: ("offset_commit_key", "offset_commit_value"),
    2: ("group_metadata_key", "group_metadata_value"),
    3: ("consumer_group_metadata_key", "consumer_group_metadata_value"),
    4: ("consumer_group_partition_metadata_key", "consumer_group_partition_metadata_value"),
    5: ("consumer_group_member_metadata_key", "consumer_group_member_metadata_value"),
    6: ("consumer_group_target_assignment_metadata_key", "consumer_group_target_assignment_metadata_value"),
    7: ("consumer_group_target_assignment_member_key", "consumer_group_target_assignment_member_value"),
    8: ("consumer_group_current_member_assignment_key", "consumer_group_current_member_assignment_value"),
}  # fmt: skip
_TRANSACTIONS = {0: ("transaction_log_key", "transaction_log_value")}


def decoder_for(options: Options) -> Decoded | None:
    if options.has("cluster-metadata-decoder"):
        return _metadata
    if options.has("offsets-decoder"):
        return _coordinator(_OFFSETS)
    if options.has("transaction-log-decoder"):
        return _coordinator(_TRANSACTIONS)
    return None


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _metadata(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    from ottla.metadata.records import decode_frame
    from ottla.protocol.primitives import read_uvarint

    del key
    if value is None:
        return None, None
    try:
        record = decode_frame(value)
        _, position = read_uvarint(value, 0)
        _, position = read_uvarint(value, position)
        version, _ = read_uvarint(value, position)
    except DecodeError as reason:
        return None, f"Error at decoding the record: {reason}"
    return None, _json({"type": _record_name(type(record).__name__), "version": version, "data": jsonable(record)})


def _record_name(name: str) -> str:
    """`FeatureLevelRecord` as FEATURE_LEVEL_RECORD."""
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


def _coordinator(kinds: dict[int, tuple[str, str]]) -> Decoded:
    def decode(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
        if key is None or len(key) < 2:
            return None, None
        (kind,) = struct.unpack_from(">h", key)
        if kind not in kinds:
            return f"Unknown message type: {kind}", "skipped"
        shown_key = _json({"type": str(kind), "data": _message(kinds[kind][0], key, 0)})
        if value is None:
            return shown_key, "<DELETE>"
        (version,) = struct.unpack_from(">h", value)
        return shown_key, _json({"version": str(version), "data": _message(kinds[kind][1], value, version)})

    return decode


def _message(module: str, data: bytes, version: int) -> object:
    name = "".join(word.capitalize() for word in module.split("_"))
    message = getattr(import_module(f"ottla.protocol.generated.{module}"), name)
    try:
        decoded, _ = message.decode(data, 2, version)
    except DecodeError as reason:
        return f"cannot be decoded: {reason}"
    return jsonable(decoded)
