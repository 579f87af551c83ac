"""Avro's canonical text: as Avro for Java prints a schema, which is what Confluent stores.

Attributes in Java's order, a namespace only where it differs from the enclosing one, names relative to it, unknown
attributes kept. Works on JSON that the avro package has accepted.
"""

from __future__ import annotations

import json
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_RESERVED = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "error": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_FIELD_RESERVED = {"name", "type", "doc", "default", "order", "aliases"}


def canonical_text(schema: Any, *, sort_extras: bool = False) -> str:
    return json.dumps(_shaped(schema, "", sort_extras), separators=(",", ":"), ensure_ascii=False)


def _shaped(schema: Any, space: str, sort: bool) -> Any:  # noqa: FBT001 - passed down a recursion, named at the top
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _relative(schema, space)
    if isinstance(schema, list):
        return [_shaped(branch, space, sort) for branch in schema]
    kind = schema["type"]
    if not isinstance(kind, str):
        # {"type": {"type": "array", ...}}: Java reads the inner one.
        return _shaped(kind, space, sort)
    if kind in {"record", "error", "enum", "fixed"}:
        return _named(schema, kind, space, sort)
    if kind == "array":
        shaped: dict[str, Any] = {"type": "array", "items": _shaped(schema["items"], space, sort)}
    elif kind == "map":
        shaped = {"type": "map", "values": _shaped(schema["values"], space, sort)}
    elif kind in PRIMITIVES:
        shaped = {"type": kind}
    else:
        return _relative(kind, space)
    shaped.update(_extras(schema, _RESERVED.get(kind, {"type"}), sort))
    return kind if len(shaped) == 1 else shaped


def _named(schema: dict[str, Any], kind: str, space: str, sort: bool) -> dict[str, Any]:  # noqa: FBT001 - as above
    name, namespace = _full_name(schema, space)
    shaped: dict[str, Any] = {"type": kind, "name": name}
    if namespace != space:
        shaped["namespace"] = namespace
    if schema.get("doc") is not None:
        shaped["doc"] = schema["doc"]
    if kind in {"record", "error"}:
        shaped["fields"] = [_field(field, namespace, sort) for field in schema["fields"]]
    elif kind == "enum":
        shaped["symbols"] = schema["symbols"]
        if "default" in schema:
            shaped["default"] = schema["default"]
    else:
        shaped["size"] = schema["size"]
    shaped.update(_extras(schema, _RESERVED[kind], sort))
    if schema.get("aliases"):
        shaped["aliases"] = [_relative(alias, namespace) for alias in schema["aliases"]]
    return shaped


def _field(field: dict[str, Any], space: str, sort: bool) -> dict[str, Any]:  # noqa: FBT001 - as above
    shaped: dict[str, Any] = {"name": field["name"], "type": _shaped(field["type"], space, sort)}
    if field.get("doc") is not None:
        shaped["doc"] = field["doc"]
    if "default" in field:
        shaped["default"] = field["default"]
    if field.get("order", "ascending") != "ascending":
        shaped["order"] = field["order"]
    if field.get("aliases"):
        shaped["aliases"] = field["aliases"]
    shaped.update(_extras(field, _FIELD_RESERVED, sort))
    return shaped


def _extras(schema: dict[str, Any], reserved: set[str], sort: bool) -> dict[str, Any]:  # noqa: FBT001 - as above
    extras = {name: value for name, value in schema.items() if name not in reserved}
    return dict(sorted(extras.items())) if sort else extras


def _full_name(schema: dict[str, Any], space: str) -> tuple[str, str]:
    name: str = schema["name"]
    if "." in name:
        namespace, _, name = name.rpartition(".")
        return name, namespace
    return name, schema.get("namespace", space) or ""


def _relative(name: str, space: str) -> str:
    namespace, dot, simple = name.rpartition(".")
    return simple if dot and namespace == space else name
