"""JSON Schema's keywords one by one: what a keyword's new value means for documents that the old value accepted.

Each function yields (kind, compatible). The names of kinds are Confluent's; docs/registry-compatibility.md lists them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "$vocabulary", "title", "description",
        "default", "examples", "readOnly", "writeOnly", "deprecated", "format", "contentEncoding", "contentMediaType",
        "contentSchema", "$dynamicAnchor", "$recursiveAnchor",
    }
)  # fmt: skip
"""Keywords that constrain nothing (format is an annotation to most validators)."""

KNOWN = ANNOTATIONS | {
    "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef",
    "maxLength", "minLength", "pattern", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf",
    "required", "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
    "maxProperties", "minProperties", "dependencies", "dependentRequired", "dependentSchemas",
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "maxItems", "minItems", "uniqueItems", "contains",
    "maxContains", "minContains",
}  # fmt: skip

DRAFTS = {"draft-04": "4", "draft-06": "6", "draft-07": "7", "2019-09": "2019-09", "2020-12": "2020-12"}
_SINCE_2020 = {"prefixItems", "$dynamicRef"}
_SINCE_2019 = _SINCE_2020 | {
    "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains",
    "$recursiveRef",
}  # fmt: skip
_SINCE_7 = _SINCE_2019 | {"if", "then", "else"}
IGNORED = {
    "4": frozenset(_SINCE_7 | {"const", "contains", "propertyNames"}),
    "6": frozenset(_SINCE_7),
    "7": frozenset(_SINCE_2019),
    "2019-09": frozenset(_SINCE_2020),
    "2020-12": frozenset({"additionalItems", "$recursiveRef"}),
}
"""Keywords that each draft does not have: they constrain nothing there."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
IN_PLACE = ("allOf", "anyOf", "oneOf")
"""Keywords with a list of schemas for the same place of the document."""

Change = tuple[str, bool]
_UPPER = {"maxLength": "MAX_LENGTH", "maxProperties": "MAX_PROPERTIES", "maxItems": "MAX_ITEMS"}
_LOWER = {"minLength": "MIN_LENGTH", "minProperties": "MIN_PROPERTIES", "minItems": "MIN_ITEMS"}
OF_TYPE = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
    "object": ("maxProperties", "minProperties"),
    "array": ("maxItems", "minItems", "uniqueItems"),
}


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    """The instance types that a schema accepts; number includes integer."""
    declared = schema.get("type")
    if declared is None:
        return TYPES
    types = frozenset([declared] if isinstance(declared, str) else declared)
    return types | {"integer"} if "number" in types else types


def changes(keyword: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """How one keyword of strings, numbers, sizes differs."""
    if keyword in {"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"}:
        yield from _bound(keyword, old, new)
        return
    before, after = old.get(keyword), new.get(keyword)
    if before == after and isinstance(before, bool) == isinstance(after, bool):
        return
    if keyword in _UPPER:
        yield from _limit(_UPPER[keyword], before, after, upper=True)
    elif keyword in _LOWER:
        yield from _limit(_LOWER[keyword], before or None, after or None, upper=False)
    elif keyword == "pattern":
        yield (
            ("PATTERN_ADDED", False)
            if before is None
            else ("PATTERN_REMOVED", True)
            if after is None
            else (
                "PATTERN_CHANGED",
                False,
            )
        )
    elif keyword == "multipleOf":
        yield _multiple(before, after)
    elif keyword == "uniqueItems" and bool(before) != bool(after):
        yield ("UNIQUE_ITEMS_ADDED", False) if after else ("UNIQUE_ITEMS_REMOVED", True)


def _limit(name: str, before: float | None, after: float | None, *, upper: bool) -> Iterator[Change]:
    if before is None and after is None:
        return
    if before is None:
        yield f"{name}_ADDED", False
    elif after is None:
        yield f"{name}_REMOVED", True
    elif before < after:
        yield f"{name}_INCREASED", upper
    elif before > after:
        yield f"{name}_DECREASED", not upper


def _multiple(before: float | None, after: float | None) -> Change:
    if before is None or after is None:
        return ("MULTIPLE_OF_ADDED", False) if before is None else ("MULTIPLE_OF_REMOVED", True)
    quotient = Fraction(repr(before)) / Fraction(repr(after))
    if quotient.denominator == 1:
        return "MULTIPLE_OF_REDUCED", True
    return ("MULTIPLE_OF_EXPANDED", False) if quotient.numerator == 1 else ("MULTIPLE_OF_CHANGED", False)


def _bound(keyword: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    """Draft 4 writes exclusiveMaximum: true beside maximum, later drafts a number: `_reach` knows both."""
    upper = keyword.endswith("aximum")
    name = {"maximum": "MAXIMUM", "minimum": "MINIMUM"}.get(keyword) or (
        "EXCLUSIVE_MAXIMUM" if upper else "EXCLUSIVE_MINIMUM"
    )
    before, after = _own(keyword, old), _own(keyword, new)
    if before == after:
        return
    kind = (
        f"{name}_ADDED" if before is None else f"{name}_REMOVED" if after is None
        else f"{name}_INCREASED" if before < after else f"{name}_DECREASED"
    )  # fmt: skip
    yield kind, after is None or _within(_reach(old, upper=upper), (after, keyword.startswith("excl")), upper=upper)


def _own(keyword: str, schema: dict[str, Any]) -> float | None:
    value = schema.get(keyword)
    if isinstance(value, bool):
        return schema.get(keyword[9].lower() + keyword[10:]) if value else None
    if keyword in {"maximum", "minimum"} and schema.get(f"exclusiveM{keyword[1:]}") is True:
        return None
    return value


def _reach(schema: dict[str, Any], *, upper: bool) -> tuple[float, bool]:
    """The tightest bound of a schema, and whether it is exclusive."""
    word = "aximum" if upper else "inimum"
    plain, exclusive = _own(f"m{word}", schema), _own(f"exclusiveM{word}", schema)
    far = math.inf if upper else -math.inf
    bounds = [(far if plain is None else plain, False), (far if exclusive is None else exclusive, True)]
    return min(bounds, key=lambda b: (b[0], not b[1])) if upper else max(bounds, key=lambda b: (b[0], b[1]))


def _within(old: tuple[float, bool], new: tuple[float, bool], *, upper: bool) -> bool:
    if old[0] == new[0]:
        return old[1] or not new[1]
    return old[0] < new[0] if upper else old[0] > new[0]
