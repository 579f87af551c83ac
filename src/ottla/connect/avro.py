"""The Avro converter: values framed with the id of their schema in a Confluent-compatible registry.

Reading needs nothing but the registry. Writing uses the schema in `value.converter.schema`, the newest schema of the
subject (`use.latest.version`), or a schema derived from the values. In a derived schema each field is optional. A new
field makes a new version, which the registry's BACKWARD rule allows.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ottla.client.schema_registry import latest_schema, register_schema, schema_by_id
from ottla.connect.converters import Converter, ConvertError
from ottla.model.user_error import UserError
from ottla.payloads.avro import AvroReader, parse_avro
from ottla.payloads.confluent import framed, unframed

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_PRIMITIVES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"), (int, "long"), (float, "double"), (str, "string"), (bytes, "bytes"),
    (datetime, "string"), (date, "string"), (Decimal, "string"),
)  # fmt: skip
_WIDER = {frozenset(("long", "double")): "double"}


def avro_converter(config: Mapping[str, str], side: str) -> Converter:
    prefix = f"{side}.converter."
    registry = config.get(f"{prefix}schema.registry.url", "")
    if not registry:
        raise UserError(f"the avro converter needs the setting {prefix}schema.registry.url")
    writer = _Writer(
        registry,
        side,
        schema=config.get(f"{prefix}schema"),
        latest=config.get(f"{prefix}use.latest.version", "false").lower() == "true",
    )
    return Converter(writer.write, functools.partial(_read, registry))


def _read(registry: str, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        schema_id, payload = unframed(data)
        return _reader(schema_by_id(registry, schema_id)).read(payload)
    except (ValueError, RecursionError) as problem:
        raise ConvertError(f"the value is not Avro of its schema: {problem}") from problem


@functools.lru_cache(maxsize=1000)
def _reader(text: str) -> AvroReader:
    return AvroReader(json.loads(text))


@functools.lru_cache(maxsize=1000)
def _parsed(text: str) -> Any:
    return parse_avro(json.loads(text))


class _Writer:
    """Keeps, per topic, the schema in use and its id."""

    def __init__(self, registry: str, side: str, *, schema: str | None, latest: bool) -> None:
        self._registry = registry
        self._side = side
        self._fixed_schema = schema
        self._latest = latest
        self._by_topic: dict[str, tuple[int, str]] = {}

    def write(self, topic: str, value: Any) -> bytes | None:
        import fastavro

        if value is None:
            return None
        schema_id, text = self._schema(topic, value)
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, _parsed(text), _avro_value(value))
        except (ValueError, TypeError, KeyError) as problem:
            raise ConvertError(f"the value does not fit the Avro schema of {topic}: {problem}") from problem
        return framed(schema_id, out.getvalue())

    def _schema(self, topic: str, value: Any) -> tuple[int, str]:
        subject = f"{topic}-{self._side}"
        in_use = self._by_topic.get(topic)
        if self._fixed_schema is not None or self._latest:
            if in_use is None:
                in_use = self._fixed(subject)
        else:
            before = json.loads(in_use[1]) if in_use is not None else None
            derived = _merged(before, _derived(value, _NOT_A_NAME.sub("_", topic)))
            if in_use is None or derived != before:
                text = json.dumps(derived)
                in_use = register_schema(self._registry, subject, text, "AVRO"), text
        self._by_topic[topic] = in_use
        return in_use

    def _fixed(self, subject: str) -> tuple[int, str]:
        if self._fixed_schema is None:
            return latest_schema(self._registry, subject)
        return register_schema(self._registry, subject, self._fixed_schema, "AVRO"), self._fixed_schema


def _derived(value: Any, name: str) -> Any:
    """The schema of one value; fields of records are optional."""
    if isinstance(value, dict):
        fields = [
            {"name": field, "type": ["null", _derived(inner, f"{name}_{field}")], "default": None}
            if inner is not None
            else {"name": field, "type": ["null"], "default": None}
            for field, inner in value.items()
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(value, list | tuple):
        items: Any = ["null"]
        for inner in value:
            items = _merged(items, ["null", _derived(inner, f"{name}_item")] if inner is not None else ["null"])
        return {"type": "array", "items": items}
    for kind, avro in _PRIMITIVES:
        if isinstance(value, kind):
            return avro
    raise ConvertError(f"a {type(value).__name__} has no Avro type")


def _merged(schema: Any, other: Any) -> Any:
    """A schema that takes the values of both; ConvertError where there is none."""
    if schema is None or schema == other:
        return other
    if isinstance(schema, list) and isinstance(other, list):
        branches = [branch for branch in (*schema, *other) if branch != "null"]
        kept = functools.reduce(_merged, branches, None)
        return ["null"] if kept is None else ["null", kept]
    if isinstance(schema, dict) and isinstance(other, dict) and schema["type"] == other["type"] == "record":
        fields = {field["name"]: field for field in schema["fields"]}
        for field in other["fields"]:
            before = fields.get(field["name"])
            fields[field["name"]] = (
                field if before is None else field | {"type": _merged(before["type"], field["type"])}
            )
        return schema | {"fields": list(fields.values())}
    if isinstance(schema, dict) and isinstance(other, dict) and schema["type"] == other["type"] == "array":
        return schema | {"items": _merged(schema["items"], other["items"])}
    wider = _WIDER.get(frozenset((schema, other))) if isinstance(schema, str) and isinstance(other, str) else None
    if wider is None:
        raise ConvertError(
            f"{json.dumps(other)} where the values before had {json.dumps(schema)}: Cast$Value makes them one"
        )
    return wider


def _avro_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _avro_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_avro_value(inner) for inner in value]
    return str(value) if isinstance(value, date | Decimal) else value
