"""Whether a reader's JSON Schema accepts every document of a writer's, rule by rule.

A schema is a conjunction: its own keywords, each member of allOf, one of anyOf, one of oneOf, not, if. Every part of
the reader must follow from some part of the writer. What cannot be shown to follow is called incompatible: the rules
are sound (but for defaults, which count as present, and oneOf, whose branches count as exclusive) and not complete.
Steps are limited; a pair that needs more is incompatible.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.registry.schemas.json_documents import Documents
from ottla.registry.schemas.json_keywords import ANNOTATIONS, KNOWN, OF_TYPE, TYPES, changes, types_of
from ottla.registry.schemas.json_structures import compare_array, compare_object
from ottla.registry.schemas.json_values import accepted
from ottla.registry.schemas.parsed import Incompatibility

MAX_STEPS = 20_000
_SUMS = ("anyOf", "oneOf")
_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "$ref"})


class Anchored(dict[str, Any]):
    """A schema of another document inside one of ours: its `$ref` stay at home."""

    def __init__(self, schema: dict[str, Any], home: Any) -> None:
        super().__init__(schema)
        self.home = home


class Side:
    """A schema and the document that its `$ref` are looked up in."""

    __slots__ = ("home", "schema")

    def __init__(self, schema: Any, home: Any) -> None:
        self.schema: dict[str, Any] = {} if schema is True else {"not": {}} if schema is False else schema
        self.home = schema.home if isinstance(schema, Anchored) else home

    def at(self, schema: Any) -> Side:
        return Side(schema, self.home)

    @property
    def anything(self) -> bool:
        return not (self.schema.keys() - ANNOTATIONS)

    @property
    def nothing(self) -> bool:
        return self.schema.get("not") in ({}, True)

    def own(self) -> dict[str, Any]:
        """Its keywords without the combining ones."""
        return {name: value for name, value in self.schema.items() if name not in _COMBINED}


class Comparison:
    def __init__(self, writer: Documents, reader: Documents) -> None:
        self._documents = (writer, reader)
        self._open: set[tuple[int, int]] = set()
        self._steps = 0
        self.found: list[Incompatibility] = []

    def run(self, writer: Any, reader: Any) -> list[Incompatibility]:
        self.compare(Side(writer, writer), Side(reader, reader), "#/")
        if self._steps > MAX_STEPS:
            self.found.append(Incompatibility("TOO_COMPLEX", "#/", f"the comparison needs more than {MAX_STEPS} steps"))
        return self.found

    def add(self, kind: str, path: str, message: str) -> None:
        self.found.append(Incompatibility(kind, path, message))

    def holds(self, writer: Side, reader: Side) -> bool:
        """Whether `reader` accepts all of `writer`; what is found is not kept."""
        mark = len(self.found)
        self.compare(writer, reader, "")
        held = len(self.found) == mark
        del self.found[mark:]
        return held

    def compare(self, writer: Side, reader: Side, path: str) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            self.add("TOO_COMPLEX", path, "the comparison was given up here")
            return
        if reader.anything or writer.nothing:
            return
        # Schemas of the documents live as long as the comparison; what is made on the way is on the stack here.
        pair = (id(writer.schema), id(reader.schema))
        if pair in self._open:
            return
        self._open.add(pair)
        try:
            self._compare(self._resolved(writer, 0), self._resolved(reader, 1), path)
        finally:
            self._open.discard(pair)

    def _resolved(self, side: Side, which: int) -> Side:
        """Follow `$ref`; keywords beside it count too (drafts before 2019-09 ignore them, which is only wider)."""
        for _ in range(32):
            ref = side.schema.get("$ref")
            if not isinstance(ref, str):
                return side
            schema, home = self._documents[which].resolve(ref, side.home)
            beside = {name: value for name, value in side.schema.items() if name != "$ref" and name not in ANNOTATIONS}
            target = Side(schema, home)
            if beside:
                return Side({"allOf": [Anchored(target.schema, target.home), beside]}, side.home)
            side = target
        return side

    def _compare(self, writer: Side, reader: Side, path: str) -> None:
        if reader.anything or writer.nothing or _identical(writer, reader):
            return
        if reader.nothing:
            self.add("TYPE_CHANGED", path, "nothing is accepted here any more")
            return
        if self._finite(writer, reader, path):
            return
        if "enum" in reader.schema or "const" in reader.schema:
            self._enumerated(writer, reader, path)
        self._own_keywords(writer, reader, path)
        for index, member in enumerate(reader.schema.get("allOf", ())):
            self._member(writer, reader.at(member), f"{path}allOf/{index}/")
        for keyword in _SUMS:
            if keyword in reader.schema:
                self._sum(writer, [reader.at(branch) for branch in reader.schema[keyword]], keyword, path)
        if "not" in reader.schema and not (
            "not" in writer.schema and self.holds(reader.at(reader.schema["not"]), writer.at(writer.schema["not"]))
        ):
            self.add("NOT_TYPE_EXTENDED", f"{path}not", "the schema forbids documents that the other one allows")
        conditional = [reader.schema.get(name) for name in ("if", "then", "else")]
        if conditional[0] is not None and conditional != [writer.schema.get(name) for name in ("if", "then", "else")]:
            self.add("CONDITION_CHANGED", f"{path}if", "if, then and else must stay as they are")

    # Values

    def _finite(self, writer: Side, reader: Side, path: str) -> bool:
        """A writer with enum or const: simply try its values. True when that has settled it."""
        values = _listed(writer.schema)
        if values is None:
            return False
        if writer.schema.keys() - ANNOTATIONS - {"enum", "const"}:
            documents = self._documents[0]
            values = [v for v in values if accepted(writer.schema, v, documents, writer.home, unsure=True)]
        listed = _listed(reader.schema)
        if listed is not None and not reader.schema.keys() - ANNOTATIONS - {"enum", "const"}:
            refused = [value for value in values if not any(_same(value, other) for other in listed)]
        else:
            documents = self._documents[1]
            refused = [v for v in values if not accepted(reader.schema, v, documents, reader.home, unsure=False)]
        if refused:
            kind = "TYPE_CHANGED"
            if listed is not None:
                kind = "ENUM_ARRAY_NARROWED" if len(refused) < len(values) else "ENUM_ARRAY_CHANGED"
            self.add(kind, f"{path}enum", f"the values {json.dumps(refused)[:200]} are not accepted any more")
        return True

    def _enumerated(self, writer: Side, reader: Side, path: str) -> None:
        """A writer that lists nothing itself: one of its allOf or every branch of a sum must list what is accepted."""
        listed = Side({name: reader.schema[name] for name in ("enum", "const") if name in reader.schema}, reader.home)
        ways = [[writer.at(member)] for member in writer.schema.get("allOf", ())]
        ways += [_parts(writer, keyword) for keyword in _SUMS]
        if not any(parts and all(self.holds(part, listed) for part in parts) for parts in ways):
            self.add("ENUM_ARRAY_ADDED", f"{path}enum", "only listed values are accepted now")

    # Combinations

    def _member(self, writer: Side, part: Side, path: str) -> None:
        """A member of the reader's allOf: it must follow from the writer as a whole or from one of its own members."""
        if any(self.holds(writer.at(member), part) for member in writer.schema.get("allOf", ())):
            return
        self.compare(writer, part, path)

    def _sum(self, writer: Side, branches: list[Side], keyword: str, path: str) -> None:
        if any(self.holds(writer, branch) for branch in branches):
            return
        for own in (*_SUMS, "type"):
            parts = _parts(writer, own)
            if parts and all(any(self.holds(part, branch) for branch in branches) for part in parts):
                return
        if any(self.holds(writer.at(m), Side({keyword: [Anchored(b.schema, b.home) for b in branches]}, branches[0].home))
               for m in writer.schema.get("allOf", ())):  # fmt: skip
            return
        had = any(own in writer.schema for own in _SUMS)
        kind = "SUM_TYPE_NARROWED" if had else "COMBINED_TYPE_CHANGED"
        self.add(kind, f"{path}{keyword}", f"no branch of {keyword} accepts all that the other schema accepts")

    # The keywords of one schema

    def _own_keywords(self, writer: Side, reader: Side, path: str) -> None:
        own = Side(reader.own(), reader.home)
        if own.anything:
            return
        others = [writer.at(m) for m in writer.schema.get("allOf", ())]
        if any(self.holds(other, own) for other in others):
            return
        for keyword in _SUMS:
            parts = _parts(writer, keyword)
            if parts and all(self.holds(part, own) for part in parts):
                return
        self._keywords(writer, own, path)

    def _keywords(self, writer: Side, reader: Side, path: str) -> None:
        old, new = writer.schema, reader.schema
        before, after = types_of(old), types_of(new)
        if not before <= after:
            common = (before & after) - {"integer"} or (before & after == {"integer"} and "number" in before)
            kind = "TYPE_NARROWED" if common and "type" in old else "TYPE_CHANGED"
            gone = sorted(before - after) if "type" in old else "values of other types"
            self.add(kind, f"{path}type", f"{gone} is not accepted any more, only {sorted(after)}")
            return
        for group, keywords in OF_TYPE.items():
            if group in before or (group == "number" and "integer" in before):
                for keyword in keywords:
                    for kind, compatible in changes(keyword, old, new):
                        if not compatible:
                            was, now = old.get(keyword), new.get(keyword)
                            self.add(kind, f"{path}{keyword}", f"{keyword} was {json.dumps(was)}, is {json.dumps(now)}")
        if "object" in before:
            compare_object(self, writer, reader, path)
        if "array" in before:
            compare_array(self, writer, reader, path)
        for name in sorted(new.keys() - KNOWN):
            if name.startswith("$") and old.get(name) != new[name]:
                self.add("KEYWORD_CHANGED", f"{path}{name}", f"{name} is not understood and has changed")


def _identical(writer: Side, reader: Side) -> bool:
    """The same text means the same, unless it points elsewhere. (In Python 1 == True; in JSON it is not.)"""
    if writer.schema != reader.schema:
        return False
    old, new = (json.dumps(side.schema, sort_keys=True) for side in (writer, reader))
    return old == new and ("$ref" not in old or writer.home is reader.home)


def _listed(schema: dict[str, Any]) -> list[Any] | None:
    """The values of enum or const; those of both where there are both."""
    if "const" not in schema:
        return schema.get("enum")
    const = schema["const"]
    return [const] if any(_same(const, value) for value in schema.get("enum", [const])) else []


def _same(left: Any, right: Any) -> bool:
    """JSON's equality: 1 is 1.0 and is not true, at any depth."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return bool(left == right)


def _parts(writer: Side, keyword: str) -> list[Side]:
    """The branches of a sum, each with the keywords around it."""
    around = {name: value for name, value in writer.schema.items() if name != keyword}
    branches = writer.schema.get(keyword)
    if keyword == "type":
        if isinstance(branches, list):
            return [writer.at({**around, "type": branch}) for branch in branches]
        return [] if branches or writer.nothing else [writer.at({**around, "type": kind}) for kind in sorted(TYPES)]
    if not branches:
        return []
    return [writer.at({**around, "allOf": [branch, *around.get("allOf", ())]} if around else branch)
            for branch in branches]  # fmt: skip
