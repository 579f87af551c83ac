"""Whether a sub-schema accepts one value: for writers that list their values.

The draft of its document defines what a sub-schema means: a list in `items` is valid in draft 7, and no schema in the
draft 2020-12 at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_documents import Anchored, Side
from ottla.registry.schemas.json_patterns import OPTIONS
from ottla.registry.schemas.json_weight import weight

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_META = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": DRAFT_7,
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_HOME = "ottla:///home"
_VALUES = frozenset({"enum", "const", "default", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})


def listed_values(schema: dict[str, Any]) -> list[Any] | None:
    """The values of enum or const; those of both where there are both."""
    if "const" not in schema:
        return schema.get("enum")
    const = schema["const"]
    return [const] if _key(const) in {_key(value) for value in schema.get("enum", [const])} else []


class Values:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._compiled: dict[int, tuple[Any, Any, int]] = {}

    def missing(self, values: Sequence[Any], listed: Sequence[Any]) -> list[Any]:
        """Those of `values` that are not in the list."""
        self._budget.spend(len(values) + len(listed))
        listed_keys = {_key(value) for value in listed}
        return [value for value in values if _key(value) not in listed_keys]

    def accepted(self, side: Side, value: Any, *, unsure: bool) -> bool:
        """Returns `unsure` for an unreadable sub-schema: a writer might accept the value, a reader might refuse it."""
        compiled = self._compiled.get(id(side.schema))
        if compiled is None:
            compiled = self._compiled[id(side.schema)] = (side.schema, *self._compile(side))
        _, validator, cost = compiled
        self._budget.spend(cost)
        try:
            return unsure if validator is None else bool(validator.is_valid(value))
        except (ValueError, TypeError, OverflowError):
            return unsure

    def _compile(self, side: Side) -> tuple[Any, int]:
        """The sub-schema stands alone here, so its `#/...` are pointed at the document that it came from."""
        homes = {_HOME: side.home}

        def retrieve(uri: str) -> Any:
            return homes[uri] if uri in homes else side.documents.retrieve(uri)

        cost = 1 + weight(side, self._budget).total // 20 + sum(map(len, _lists(side.schema, self._budget))) // 20
        alone = {"$schema": _META[side.draft], **_rehomed(side.schema, _HOME, homes)}
        try:
            return jsonschema_rs.validator_for(alone, retriever=retrieve, pattern_options=OPTIONS), cost
        except (ValueError, TypeError, OverflowError):
            return None, cost


def _lists(schema: Any, budget: Budget) -> list[list[Any]]:
    """Every enum of the schema: the search for a value starts at the beginning of the enum."""
    budget.spend()
    if isinstance(schema, list):
        return [enum_values for item in schema for enum_values in _lists(item, budget)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("enum")
    enums = [own] if isinstance(own, list) else []
    return enums + [
        enum_values for name, inner in schema.items() if name not in _VALUES for enum_values in _lists(inner, budget)
    ]


def _key(value: Any) -> Any:
    """Equal for values that JSON calls equal: 1 is 1.0 and is not true, at any depth."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(_key, value))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(inner)) for name, inner in value.items()))
    return value


def _rehomed(schema: Any, here: str, homes: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_rehomed(item, here, homes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema, Anchored):
        here = f"{_HOME}/{len(homes)}"
        homes[here] = schema.home
    rehomed = {name: inner if name in _VALUES else _members(inner, here, homes) if name in _NAMED
               else _rehomed(inner, here, homes) for name, inner in schema.items()}  # fmt: skip
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#"):
        rehomed["$ref"] = f"{here}{ref}"
    return rehomed


def _members(named: Any, here: str, homes: dict[str, Any]) -> Any:
    """Schemas by a name, which may be any keyword's too."""
    return {name: _rehomed(inner, here, homes) for name, inner in named.items()} if isinstance(named, dict) else named
