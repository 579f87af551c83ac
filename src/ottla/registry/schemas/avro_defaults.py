"""Whether the defaults of an Avro schema are values of their types, as Avro for Java asks of a new schema.

The avro package reads defaults and does not judge them; a reader that needs one would fail on every record. A union's
default may be of any branch, as in Java. Walked once per type, so that schemas that contain themselves come to an end.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.registry.schemas.parsed import SchemaProblem

_INT, _LONG = 1 << 31, 1 << 63
_MAX_STEPS = 100_000


def invalid_default(schema: Any) -> str | None:
    """Java's words for the first default that is no value of its type; None when all are."""
    seen: set[int] = set()
    waiting = [schema]
    check = _Check()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.type in {"record", "error"}:
            for field in node.fields:
                if field.has_default and not check.fits(field.type, field.default):
                    default = json.dumps(field.default, separators=(",", ":"), ensure_ascii=False)
                    return f"Invalid default for field {field.name}: {default[:200]} not a {str(field.type)[:200]}"
                waiting.append(field.type)
        elif node.type == "array":
            waiting.append(node.items)
        elif node.type == "map":
            waiting.append(node.values)
        elif node.type in {"union", "error_union"}:
            waiting.extend(node.schemas)
    return None


class _Check:
    """Each pair of type and value is judged once: many branches over deep values would be tried in every combination."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, int], bool] = {}

    def fits(self, schema: Any, value: Any) -> bool:
        pair = (id(schema), id(value))
        if pair not in self._verdicts:
            if len(self._verdicts) >= _MAX_STEPS:
                raise SchemaProblem(f"the defaults take more than {_MAX_STEPS} steps to check")
            self._verdicts[pair] = False  # a record whose default needs that default again has no end
            self._verdicts[pair] = self._judge(schema, value)
        return self._verdicts[pair]

    def _judge(self, schema: Any, value: Any) -> bool:
        kind = schema.type
        if kind in {"string", "bytes", "enum", "fixed"}:
            return isinstance(value, str)
        if kind == "boolean":
            return isinstance(value, bool)
        if kind == "null":
            return value is None
        if kind in {"int", "long"}:
            limit = _INT if kind == "int" else _LONG
            return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        if kind in {"float", "double"}:
            return isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "array":
            return isinstance(value, list) and all(self.fits(schema.items, item) for item in value)
        if kind == "map":
            return isinstance(value, dict) and all(self.fits(schema.values, item) for item in value.values())
        if kind in {"union", "error_union"}:
            return any(self.fits(branch, value) for branch in schema.schemas)
        return isinstance(value, dict) and all(self._field_fits(field, value) for field in schema.fields)

    def _field_fits(self, field: Any, values: dict[str, Any]) -> bool:
        """A field that the value leaves out takes its own default."""
        if field.name in values:
            return self.fits(field.type, values[field.name])
        return bool(field.has_default) and self.fits(field.type, field.default)
