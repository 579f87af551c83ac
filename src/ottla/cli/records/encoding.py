"""Text from a person as a record's bytes: plain, JSON, or by a schema of the registry in Confluent's framing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from ottla.console.registry_client import ConsoleRegistry
from ottla.payloads.confluent import FIRST_MESSAGE, framed
from ottla.payloads.json_text import read_json

NO_REGISTRY = "no schema registry is set: give --registry URL, or set OTTLA_REGISTRY"


def encoder(how: str, registry: ConsoleRegistry, subject: str) -> Callable[[str], bytes]:
    """`how` is text, json or schema; ValueError for text that does not fit."""
    if how == "text":
        return lambda text: text.encode()
    if how == "json":
        return lambda text: json.dumps(_json(text), ensure_ascii=False, separators=(",", ":")).encode()
    if not registry.configured:
        raise ValueError(NO_REGISTRY)
    version = registry.version(subject)
    schema_id = int(version["id"])
    write = {"AVRO": _avro, "JSON": _json_schema, "PROTOBUF": _protobuf}[str(version.get("schemaType", "AVRO"))](
        registry, version
    )
    return lambda text: framed(schema_id, write(_json(text)))


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as reason:
        raise ValueError(f"not JSON: {reason}") from None


def _avro(registry: ConsoleRegistry, version: dict[str, Any]) -> Callable[[Any], bytes]:
    from fastavro import schemaless_writer

    from ottla.payloads.avro import parse_avro

    schema = registry.schema(int(version["id"]))
    dependencies = [json.loads(text) for text in schema["resolved"].values()]
    parsed = parse_avro(json.loads(schema["schema"]), dependencies)

    def write(tree: Any) -> bytes:
        out = io.BytesIO()
        try:
            schemaless_writer(out, parsed, tree)
        except (ValueError, TypeError, KeyError, AttributeError) as reason:
            raise ValueError(f"does not fit schema {version['id']}: {reason}") from None
        return out.getvalue()

    return write


def _json_schema(registry: ConsoleRegistry, version: dict[str, Any]) -> Callable[[Any], bytes]:
    import jsonschema_rs

    from ottla.registry.schemas.json_patterns import OPTIONS

    del registry
    check = jsonschema_rs.validator_for(json.loads(version["schema"]), pattern_options=OPTIONS)

    def write(tree: Any) -> bytes:
        try:
            check.validate(tree)
        except jsonschema_rs.ValidationError as problem:
            raise ValueError(f"does not fit schema {version['id']}: {problem.message}") from None
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()

    return write


def _protobuf(registry: ConsoleRegistry, version: dict[str, Any]) -> Callable[[Any], bytes]:
    from google.protobuf import json_format

    from ottla.console.messages.protobuf import _Messages

    schema_id = int(version["id"])
    message = _Messages(registry, schema_id, registry.schema(schema_id)).at([0])

    def write(tree: Any) -> bytes:
        try:
            return FIRST_MESSAGE + bytes(json_format.ParseDict(tree, message()).SerializeToString())
        except json_format.ParseError as reason:
            raise ValueError(f"does not fit schema {schema_id}: {reason}") from None

    return write
