"""JSON Schema's verdicts where keywords reach beyond their own schema, and the judge of all: no document is lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ottla.registry.schemas.json_schema import JsonSchema
from ottla.registry.schemas.parsed import Dependency, SchemaProblem
from tests.registry.made_up_schemas import DRAFTS, MadeUp

NEW = {"$schema": DRAFTS["2020-12"]}
CLOSED = {"unevaluatedProperties": False}


def compatible(old: Any, new: Any, others: tuple[Any, Any] = ({}, {})) -> bool:
    writer, reader = (
        JsonSchema(json.dumps(schema), [Dependency(name, json.dumps(each)) for name, each in refs.items()])
        for schema, refs in zip((old, new), others, strict=True)
    )
    return not reader.incompatibilities(writer)


def base(kind: str, **more: Any) -> dict[str, Any]:
    return {"properties": {"a": {"type": kind}}, **more}


WAYS = {
    "allOf": lambda kind: {"allOf": [base(kind)]},
    "$ref": lambda kind: {"$ref": "#/$defs/base", "$defs": {"base": base(kind)}},
    "anyOf": lambda kind: {"anyOf": [base(kind), {"required": ["z"]}]},
    "oneOf": lambda kind: {"oneOf": [base(kind, required=["a"]), {"type": "string"}]},
    "if": lambda kind: {"if": {"required": ["a"]}, "then": base(kind)},
    "dependentSchemas": lambda kind: {"dependentSchemas": {"a": base(kind)}},
    "nested": lambda kind: {"allOf": [{"$ref": "#/$defs/base"}], "$defs": {"base": {"allOf": [base(kind)]}}},
    "$dynamicRef": lambda kind: {"$dynamicRef": "#b", "$defs": {"base": {"$dynamicAnchor": "b", **base(kind)}}},
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_closed_schema_knows_what_others_evaluate(way: str) -> None:
    """A type that changes in the base is seen, though unevaluatedProperties closes the schema around it."""
    old, new = ({**NEW, **CLOSED, **WAYS[way](kind)} for kind in ("string", "integer"))
    assert not compatible(old, new)
    assert compatible(old, old | {"title": "the same"})


@pytest.mark.parametrize("way", ["allOf", "$ref", "nested"])
def test_a_base_may_widen_and_lose_its_closing(way: str) -> None:
    string, anything = ({**NEW, **CLOSED, **WAYS[way](kind)} for kind in ("string", "string"))
    wide = json.loads(json.dumps(anything).replace('"type": "string"', '"type": ["string", "null"]'))
    assert compatible(string, wide)
    assert not compatible(wide, string)
    assert compatible(string, {key: value for key, value in string.items() if key not in CLOSED})
    assert not compatible({key: value for key, value in string.items() if key not in CLOSED}, string)


def test_a_property_may_be_added_to_a_base_that_is_closed_from_outside() -> None:
    old = {**NEW, **CLOSED, "allOf": [{"properties": {"a": {}}}]}
    new = {**NEW, **CLOSED, "allOf": [{"properties": {"a": {}, "b": {"type": "string"}}}]}
    assert not compatible(new, old)
    # What may be evaluated by anyOf is not surely so.
    maybe = {**NEW, **CLOSED, "anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
    assert not compatible(maybe, {**NEW, **CLOSED, "properties": {"a": {}}})
    assert compatible(old, {**NEW, **CLOSED, "properties": {"a": {}, "b": {"type": "string"}}})


def test_items_that_others_evaluate() -> None:
    old = {**NEW, "unevaluatedItems": False, "allOf": [{"prefixItems": [{"type": "string"}]}]}
    new = {**NEW, "unevaluatedItems": False, "allOf": [{"prefixItems": [{"type": "integer"}]}]}
    assert not compatible(old, new)
    assert compatible(old, {**NEW, "prefixItems": [True], "items": False})
    assert not compatible(old, {**NEW, "items": False})
    contains = {**NEW, "unevaluatedItems": False, "contains": {"type": "string"}}
    assert not compatible(contains, {**NEW, "items": False}), "items that match contains are evaluated"
    older = {"$schema": DRAFTS["2019-09"], "unevaluatedItems": False, "allOf": [{"items": [{"type": "string"}]}]}
    assert compatible(older, {"$schema": DRAFTS["2019-09"], "items": [{}], "additionalItems": False})


def test_what_a_dynamic_reference_means_may_not_change() -> None:
    def tree(kind: str) -> Any:
        return {**NEW, "$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "properties": {
            "v": {"type": kind}, "next": {"$dynamicRef": "#n"}}}}}  # fmt: skip

    assert not compatible(tree("string"), tree("integer"))
    assert compatible(tree("integer"), tree("number"))
    older = [{"$schema": DRAFTS["2019-09"], "properties": {"next": {"$recursiveRef": "#"}, "v": {"type": kind}}}
             for kind in ("string", "integer", "number")]  # fmt: skip
    assert not compatible(older[0], older[1])
    assert compatible(older[1], older[2])


def test_a_dynamic_reference_with_two_meanings_is_not_guessed() -> None:
    def two(kind: str) -> Any:
        places = {name: {"$id": name, "$dynamicAnchor": "n", "type": kind} for name in ("x", "y")}
        return {
            **NEW,
            "$ref": "x",
            "$defs": {**places, "z": {"$dynamicRef": "x#n"}},
            "properties": {"a": {"$dynamicRef": "x#n"}},
        }

    assert not compatible(two("string"), two("object"))


def test_not_with_a_reference_elsewhere() -> None:
    """What is forbidden stands in another document: each side looks in its own."""
    schema = {"not": {"$ref": "forbidden.json"}}
    few, many = {"enum": ["x"]}, {"enum": ["x", "y"]}
    assert not compatible(schema, schema, ({"forbidden.json": few}, {"forbidden.json": many}))
    assert compatible(schema, schema, ({"forbidden.json": many}, {"forbidden.json": few}))


def test_inside_not_nothing_is_lenient() -> None:
    """A required property with a default counts as present; inside not that would let documents go."""
    forbidden = {"properties": {"a": {"default": 1}}, "required": ["a"], "type": "object"}
    assert not compatible({"not": forbidden}, {"not": {"type": "object", "properties": {"a": {"default": 1}}}})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Draft 7 does not have these keywords: they close nothing.
        ({"unevaluatedProperties": False}, {"additionalProperties": False}),
        ({"dependentRequired": {"a": ["b"]}}, {"dependencies": {"a": ["b"]}}),
        ({"prefixItems": [{"type": "string"}]}, {"items": [{"type": "string"}]}),
        # Beside $ref a draft 7 schema says nothing.
        ({"$ref": "#/definitions/any", "type": "string", "definitions": {"any": {}}}, {"type": "string"}),
        # The same word means something else in another draft.
        ({"unevaluatedProperties": False}, {**NEW, "unevaluatedProperties": False}),
        # The same text, but what it refers to has changed.
        ({"contains": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "string"}}},
         {"contains": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "integer"}}}),
        ({"if": {"$ref": "#/definitions/a"}, "then": False, "definitions": {"a": {"type": "string"}}},
         {"if": {"$ref": "#/definitions/a"}, "then": False, "definitions": {"a": {"type": "integer"}}}),
    ],
)  # fmt: skip
def test_keywords_mean_what_their_draft_says(old: Any, new: Any) -> None:
    assert not compatible(old, new)


def test_a_condition_with_references_may_stay_while_something_else_changes() -> None:
    old = {"if": {"$ref": "#/definitions/a"}, "then": {"$ref": "#/definitions/b"}, "definitions": {
        "a": {"required": ["x"]}, "b": {"properties": {"y": {"$ref": "#/definitions/b"}}, "minProperties": 1}}}  # fmt: skip
    assert compatible({**old, "maxProperties": 3}, {**old, "maxProperties": 4})


def check_seeds(seeds: range, documents: int) -> tuple[int, int]:
    """How many pairs were compatible, and how many documents were tried on them."""
    pairs = tried = 0
    for seed in seeds:
        made_up = MadeUp(random.Random(seed))
        old = made_up.document()
        new = made_up.changed(old)
        try:
            writer, reader = JsonSchema(json.dumps(old)), JsonSchema(json.dumps(new))
            reasons = reader.incompatibilities(writer)
        except SchemaProblem:
            continue
        assert writer.incompatibilities(JsonSchema(json.dumps(old))) == []
        if reasons:
            continue
        pairs += 1
        for _ in range(documents):
            document = made_up.value(3)
            if writer.accepts(document):
                tried += 1
                assert reader.accepts(document), (seed, old, new, document)
    return pairs, tried


def test_no_document_is_lost_by_a_compatible_change() -> None:
    """jsonschema-rs is the judge: what the old schema accepts, the new one accepts."""
    pairs, tried = check_seeds(range(400), 20)
    assert pairs > 200
    assert tried > 1000


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_document_is_lost_by_a_hundred_thousand_changes() -> None:
    print(check_seeds(range(1000, 101_000), 40))
