"""What each keyword that the rules read must hold.

jsonschema-rs checks a document against its draft, but not what a `$ref` finds at a place where no schema belongs.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.schemas.parsed import SchemaProblem

_SCHEMA = (dict, bool)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SINGLE = frozenset(
    {
        "not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems",
        "unevaluatedItems", "contains",
    }
)  # fmt: skip
_NUMBERS = frozenset(
    {
        "maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties", "maximum", "minimum",
        "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "minContains", "maxContains",
    }
)  # fmt: skip


def check_shape(schema: dict[str, Any]) -> None:
    """SchemaProblem when a keyword holds what it cannot."""
    for name, value in schema.items():
        if not _fits(name, value):
            raise SchemaProblem(f"{name} cannot be {str(value)[:100]}")


def _fits(name: str, value: Any) -> bool:
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(member, _SCHEMA) for member in value)
    if name in _NAMED:
        return isinstance(value, dict) and all(isinstance(member, _SCHEMA) for member in value.values())
    if name in _SINGLE:
        return isinstance(value, _SCHEMA)
    if name in _NUMBERS:
        return isinstance(value, int | float) and (name != "multipleOf" or value > 0)
    return _fits_other(name, value)


def _fits_other(name: str, value: Any) -> bool:
    if name == "items":
        return isinstance(value, _SCHEMA) or (
            isinstance(value, list) and all(isinstance(member, _SCHEMA) for member in value)
        )
    if name == "dependencies":
        return isinstance(value, dict) and all(
            isinstance(member, _SCHEMA) or _names(member) for member in value.values()
        )
    if name == "dependentRequired":
        return isinstance(value, dict) and all(map(_names, value.values()))
    if name == "required":
        return _names(value)
    if name == "type":
        return isinstance(value, str) or (bool(value) and _names(value))
    if name == "enum":
        return isinstance(value, list)
    return isinstance(value, str) if name in {"pattern", "$ref", "$dynamicRef", "$recursiveRef"} else True


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
