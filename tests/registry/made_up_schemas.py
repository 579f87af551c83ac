"""Made-up JSON Schemas in every draft, pairs of them that differ in one place, and documents that might fit.

Everything comes from one `random.Random`, so that a seed is a test.
"""

from __future__ import annotations

import copy
import random
from typing import Any

DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "ax")
TYPES = ("string", "integer", "number", "object", "array", "null", "boolean")
DEFINITIONS = ("d", "e")


class MadeUp:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.draft = chance.choice([*DRAFTS, "2019-09", "2020-12", "2020-12"])
        self._old = self.draft == "4"

    def document(self) -> Any:
        """A whole schema: definitions, and something that uses them."""
        found = self._object(3) if self._chance.random() < 0.8 else self._schema(3)
        if isinstance(found, bool):
            found = {}
        if self._chance.random() < 0.5:
            found.update(self._keywords(3, self._chance.randint(1, 2)))
        found["$schema"] = DRAFTS[self.draft]
        found["$defs"] = {name: self._definition(name) for name in DEFINITIONS}
        return found

    def _definition(self, name: str) -> Any:
        """Definitions refer to later ones only, but for what goes into the document."""
        schema = self._object(1) if self._chance.random() < 0.7 else self._schema(1)
        if isinstance(schema, dict) and self.draft == "2020-12" and name == "d" and self._chance.random() < 0.4:
            schema["$dynamicAnchor"] = "node"
        return schema

    def _object(self, depth: int) -> Any:
        """Mostly about objects, for most rules are."""
        found: dict[str, Any] = {}
        if self._chance.random() < 0.6:
            found["properties"] = {name: self._schema(depth - 1) for name in self._some(NAMES, 1, 2)}
        if self._chance.random() < 0.4:
            found["type"] = "object"
        if self._chance.random() < 0.4:
            keyword = self._chance.choice(["additionalProperties", "unevaluatedProperties", "unevaluatedProperties"])
            found[keyword] = self._chance.choice([False, False, True, {"type": "string"}])
        if depth > 0 and self._chance.random() < 0.4:
            found.update(self._combination(depth))
        return found

    def _some(self, of: Any, least: int, most: int) -> list[Any]:
        return self._chance.sample(list(of), self._chance.randint(least, min(most, len(of))))

    def _reference(self) -> Any:
        kinds = ["$ref", "$ref", "$ref"] + (["$dynamicRef"] if self.draft == "2020-12" else [])
        if self._chance.choice(kinds) == "$dynamicRef":
            return {"$dynamicRef": "#node"}
        return {"$ref": f"#/$defs/{self._chance.choice(DEFINITIONS)}"}

    def _schema(self, depth: int) -> Any:
        roll = self._chance.random()
        if roll < 0.1:
            return {} if self._old else self._chance.random() < 0.6
        if roll < 0.45 or depth <= 0:
            return {"type": self._chance.choice(TYPES)}
        if roll < 0.6 and depth > 1:
            return self._reference()
        if roll < 0.75:
            return self._object(depth)
        return self._keywords(depth, self._chance.randint(1, 3))

    def _combination(self, depth: int) -> dict[str, Any]:
        below = depth - 1
        one = lambda: self._reference() if self._chance.random() < 0.4 and depth > 1 else self._object(below)  # noqa: E731
        kind = self._chance.choice(["allOf", "allOf", "anyOf", "if", "dependentSchemas", "not", "$ref", "oneOf"])
        if kind in {"allOf", "anyOf"}:
            return {kind: [one() for _ in range(self._chance.randint(1, 2))]}
        if kind == "oneOf":
            return {kind: [{"type": "string"}, {"type": "object", "required": ["a"]}]}
        if kind == "if":
            return {"if": one(), "then": one(), **({"else": one()} if self._chance.random() < 0.5 else {})}
        if kind == "dependentSchemas":
            return {kind: {self._chance.choice(NAMES): one()}}
        if kind == "not":
            return {kind: self._chance.choice([one(), {"type": "string"}, {"required": ["a"]}])}
        return self._reference() if depth > 1 else {}

    def _keywords(self, depth: int, count: int) -> dict[str, Any]:
        chance, below = self._chance, depth - 1
        small = lambda: chance.randint(0, 4)  # noqa: E731
        schema = lambda: self._schema(below)  # noqa: E731
        boolean = lambda: chance.random() < 0.5  # noqa: E731
        either = lambda: chance.choice([boolean, schema])()  # noqa: E731, PLW0108 - another one each time
        makers: dict[str, Any] = {
            "type": lambda: chance.choice([*TYPES, ["string", "null"], ["integer", "object"]]),
            "maxLength": small, "minLength": small, "pattern": lambda: chance.choice(["^a", "b"]),
            "maximum": small, "minimum": small, "multipleOf": lambda: chance.choice([1, 2, 3, 4]),
            "patternProperties": lambda: {p: schema() for p in self._some(["^a", "x"], 1, 2)},
            "additionalProperties": either,
            "unevaluatedProperties": either,
            "required": lambda: self._some(NAMES, 1, 2),
            "maxProperties": small, "minProperties": small,
            "propertyNames": lambda: chance.choice([{"maxLength": 1}, {"maxLength": 2}]),
            "dependencies": lambda: {chance.choice(NAMES): chance.choice([[chance.choice(NAMES)], {"required": ["b"]}])},
            "dependentRequired": lambda: {chance.choice(NAMES): [chance.choice(NAMES)]},
            "items": schema, "unevaluatedItems": either,
            "prefixItems": lambda: [schema() for _ in range(chance.randint(1, 2))],
            "additionalItems": either,
            "maxItems": small, "minItems": small, "uniqueItems": boolean, "contains": schema,
            "minContains": small, "maxContains": small,
            "enum": lambda: [self.value(1) for _ in range(2)], "const": lambda: self.value(1),
        }  # fmt: skip
        if self.draft != "2020-12":
            makers["items"] = lambda: [schema() for _ in range(2)] if boolean() else schema()
        found = {name: makers[name]() for name in self._some(makers, count, count)}
        if "enum" in found:
            found["enum"] = found["enum"][:1] if found["enum"][0] == found["enum"][-1] else found["enum"]
        if chance.random() < 0.35 and depth > 0:
            found.update(self._combination(depth))
        return found

    def value(self, depth: int) -> Any:
        roll = self._chance.random()
        if depth > 0 and roll < 0.45:
            return {name: self.value(depth - 1) for name in self._some((*NAMES, "z"), 0, 3)}
        if depth > 0 and roll < 0.6:
            return [self.value(depth - 1) for _ in range(self._chance.randint(0, 3))]
        return self._chance.choice([None, True, False, 0, 1, 2, 3, 8, -1, 2.5, "", "a", "ab", "abcd"])

    def changed(self, schema: Any) -> Any:
        """The same with one place dropped, added or replaced."""
        copied = copy.deepcopy(schema)
        places = list(_places(copied))
        holder = self._chance.choice(places)
        names = [name for name in holder if name != "$schema"]
        roll = self._chance.random()
        if roll < 0.35 and names:
            del holder[self._chance.choice(names)]
        elif roll < 0.6:
            holder.update(self._keywords(1, 1))
        elif roll < 0.75:
            holder.update(self._combination(1))
        elif names:
            name = self._chance.choice(names)
            if isinstance(holder[name], dict | bool) and name not in {"properties", "patternProperties", "$defs"}:
                holder[name] = self._schema(1)
            elif name == "type":
                holder[name] = self._chance.choice(TYPES)
        return copied


def _places(schema: Any) -> Any:
    """Every object of the document, but for the branches of oneOf, which count as exclusive and must stay so."""
    if isinstance(schema, dict):
        yield schema
        for name, inner in schema.items():
            if name != "oneOf":
                yield from _places(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _places(inner)
