"""unevaluatedProperties and unevaluatedItems, written as the keywords that know only their own schema.

unevaluatedProperties does not apply to members that `allOf`, `$ref`, `anyOf`, `if` and the like evaluate. For a reader
only members that are surely evaluated count; for a writer all that may be evaluated count. The resulting schema accepts
no more than the reader's, and no less than the writer's.
"""

from __future__ import annotations

from typing import Any

from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_documents import Side
from ottla.registry.schemas.json_keywords import IN_PLACE, REFERENCES

_TRUE: Any = True


class Evaluated:
    """What the schemas for one place of a document evaluate: every name, or some; every item, or the first ones."""

    __slots__ = ("all_items", "all_names", "items", "names", "patterns")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.patterns: set[str] = set()
        self.all_names = False
        self.items = 0
        self.all_items = False


def plain(side: Side, budget: Budget, *, sure: bool) -> dict[str, Any]:
    """The schema without unevaluatedProperties and unevaluatedItems."""
    schema = side.schema
    names, items = schema.get("unevaluatedProperties"), schema.get("unevaluatedItems")
    if names is None and items is None:
        return schema
    evaluated = Evaluated()
    _below(side, evaluated, budget, set(), sure=sure)
    plain_schema = {name: value for name, value in schema.items() if not name.startswith("unevaluated")}
    if names is not None and "additionalProperties" not in schema and not evaluated.all_names:
        plain_schema["properties"] = {**dict.fromkeys(evaluated.names, _TRUE), **schema.get("properties", {})}
        plain_schema["patternProperties"] = {
            **dict.fromkeys(evaluated.patterns, _TRUE),
            **schema.get("patternProperties", {}),
        }
        plain_schema["additionalProperties"] = names
    if items is not None and not evaluated.all_items:
        _items(side, plain_schema, items, evaluated, sure=sure)
    return plain_schema


def _items(side: Side, plain_schema: dict[str, Any], unevaluated: Any, evaluated: Evaluated, *, sure: bool) -> None:
    schema, draft = side.schema, side.draft
    own = schema.get("items")
    first = schema.get("prefixItems", own if isinstance(own, list) else [])
    if "additionalItems" in schema if isinstance(own, list) else own is not None:
        return  # every item is evaluated
    if not sure and "contains" in schema:
        return  # an item that matches contains is evaluated
    prefix_items = [*first, *[_TRUE] * (evaluated.items - len(first))]
    plain_schema |= (
        {"prefixItems": prefix_items, "items": unevaluated}
        if draft == "2020-12"
        else {"items": prefix_items, "additionalItems": unevaluated}
    )


def _below(side: Side, into: Evaluated, budget: Budget, seen: set[int], *, sure: bool) -> None:
    """What the schemas inside of `side` evaluate at its own place."""
    for inner in _in_place(side, sure=sure):
        budget.spend()
        if inner is None:
            into.all_names = into.all_items = True
        elif id(inner.schema) not in seen:
            seen.add(id(inner.schema))
            _own(inner.schema, into, budget, sure=sure)
            _below(inner, into, budget, seen, sure=sure)


def _own(schema: dict[str, Any], into: Evaluated, budget: Budget, *, sure: bool) -> None:
    names, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    budget.spend(len(names) + len(patterns))
    into.names.update(names)
    into.patterns.update(patterns)
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        into.all_names = True
    items = schema.get("items")
    if isinstance(items, list):
        into.items = max(into.items, len(items))
        into.all_items |= "additionalItems" in schema
    elif items is not None:
        into.all_items = True
    into.items = max(into.items, len(schema.get("prefixItems", ())))
    into.all_items |= "unevaluatedItems" in schema or ("contains" in schema and not sure)


def _in_place(side: Side, *, sure: bool) -> list[Side | None]:
    """The schemas for the same place: those that always apply, or all. None stands for an unknown schema."""
    schema = side.schema
    targets = side.targets()
    sides: list[Side | None] = [] if sure and len(targets) > 1 else list(targets)
    sides += [side.at(member) for member in schema.get("allOf", ())]
    if sure:
        return sides
    if any(keyword in schema for keyword in REFERENCES) and not targets:
        sides.append(None)
    for keyword in IN_PLACE[1:]:
        sides += [side.at(branch) for branch in schema.get(keyword, ())]
    sides += [side.at(schema[keyword]) for keyword in ("not", "if", "then", "else") if keyword in schema]
    for keyword in ("dependentSchemas", "dependencies"):
        sides += [
            side.at(dependency) for dependency in schema.get(keyword, {}).values() if not isinstance(dependency, list)
        ]
    return sides
