"""Whether a reader's JSON Schema accepts every document of a writer's, rule by rule.

A schema is a conjunction: its own keywords, each member of allOf, one of anyOf, one of oneOf, not, if. Every part of
the reader must follow from some part of the writer. What cannot be shown to follow is called incompatible: the rules
are sound (but for defaults, which count as present, and oneOf, whose branches count as exclusive) and not complete.
Each step is spent from a budget. A pair is compared once: what was refuted stays so, what was shown or is being shown
counts as shown until something that relies on it is refuted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_documents import Anchored, Documents, Side
from ottla.registry.schemas.json_evaluated import plain
from ottla.registry.schemas.json_keywords import ANNOTATIONS, KNOWN, OF_TYPE, REFERENCES, TYPES, changes, types_of
from ottla.registry.schemas.json_patterns import Patterns
from ottla.registry.schemas.json_sameness import Sameness
from ottla.registry.schemas.json_structures import compare_array, compare_object
from ottla.registry.schemas.json_values import Values, listed_values
from ottla.registry.schemas.parsed import Incompatibility

MAX_FOUND = 100
"""At most this many reasons are listed; the first one already decides the verdict."""
_MAX_REFERENCES = 200
_SUMS = ("anyOf", "oneOf")
_COMBINED = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", *REFERENCES})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_EVALUATING = frozenset(
    {
        *REFERENCES, *_UNEVALUATED, "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
        "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "additionalItems", "contains",
        "minContains", "maxContains",
    }
)  # fmt: skip
_LISTING = frozenset({"enum", "const"})


class _Refuted(Exception):
    """The pair is not compatible; the caller needs no reason."""


class Comparison:
    def __init__(self, writer: Documents, reader: Documents, budget: Budget) -> None:
        self._documents = (writer, reader)
        self.budget = budget
        self.patterns = Patterns(budget)
        self._values = Values(budget)
        self.same = Sameness(budget)
        self._shown: dict[tuple[int, int, bool], None] = {}
        """Pairs that hold if those do that are being compared, in the order of their comparison."""
        self._refuted: set[tuple[int, int, bool]] = set()
        self._derived: dict[tuple[int, str], tuple[Any, list[Side]]] = {}
        """Schemas made on the way, by what they were made of: the same object each time, and kept, for its id counts."""
        self._quiet = False
        self.strict = False
        """Inside not: no leniency, for what is lenient there is strict outside."""
        self.reasons: list[Incompatibility] = []

    def run(self) -> list[Incompatibility]:
        writer, reader = self._documents
        if not writer.same_text(reader):
            self.compare(writer.root, reader.root, "#/")
        return self.reasons

    def add(self, kind: str, path: str, message: str) -> None:
        if self._quiet:
            raise _Refuted
        if len(self.reasons) < MAX_FOUND:
            self.reasons.append(Incompatibility(kind, path[:500], message[:500]))

    def holds(self, writer: Side, reader: Side) -> bool:
        """Whether `reader` accepts all of `writer`; what is found is not kept."""
        quiet, self._quiet = self._quiet, True
        try:
            self.compare(writer, reader, "")
        except _Refuted:
            return False
        else:
            return True
        finally:
            self._quiet = quiet

    def compare(self, writer: Side, reader: Side, path: str) -> None:
        self.budget.spend()
        if reader.anything or writer.nothing or len(self.reasons) >= MAX_FOUND:
            return
        pair = (id(writer.schema), id(reader.schema), self.strict)
        if pair in self._shown:
            return
        if self._quiet and pair in self._refuted:
            raise _Refuted
        mark, before = len(self._shown), len(self.reasons)
        self._shown[pair] = None
        try:
            self._compare(self._resolved(writer), self._resolved(reader), path)
        except _Refuted:
            self._take_back(mark, pair)
            raise
        if len(self.reasons) > before:
            self._take_back(mark, pair)

    def _take_back(self, mark: int, pair: tuple[int, int, bool]) -> None:
        while len(self._shown) > mark:
            self._shown.popitem()
        self._refuted.add(pair)

    def derived(self, schema: Any, name: str, make: Callable[[], list[Side]]) -> list[Side]:
        """What `make` gives, once for each schema."""
        key = (id(schema), name)
        derived_sides = self._derived.get(key)
        if derived_sides is None:
            derived_sides = self._derived[key] = (schema, make())
            self.budget.spend(1 + sum(len(side.schema) for side in derived_sides[1]))
        return derived_sides[1]

    def _resolved(self, side: Side) -> Side:
        """Follow references; keywords beside one count too (drafts before 2019-09 have taken them out)."""
        for _ in range(_MAX_REFERENCES):
            self.budget.spend()
            targets = side.targets()
            if len(targets) != 1:
                return side
            [target] = targets
            beside = {
                name: value for name, value in side.schema.items() if name not in REFERENCES and name not in ANNOTATIONS
            }
            if beside:
                return self.derived(side.schema, "$ref", lambda: [_beside(side, target, beside)])[0]  # noqa: B023 - at once
            side = target
        return side

    def _compare(self, writer: Side, reader: Side, path: str) -> None:
        if reader.anything or writer.nothing or self.same.holds(writer, reader):
            return
        if reader.nothing:
            self.add("TYPE_CHANGED", path, "nothing is accepted here any more")
            return
        if any(keyword in reader.schema for keyword in REFERENCES):
            self.add("KEYWORD_CHANGED", path, "what a dynamic reference means here depends on the way to it")
            return
        self.budget.spend(_breadth(writer.schema) + _breadth(reader.schema))
        if self._finite(writer, reader, path):
            return
        if not _LISTING.isdisjoint(reader.schema):
            self._enumerated(writer, reader, path)
        self._own_keywords(writer, reader, path)
        for index, member in enumerate(reader.schema.get("allOf", ())):
            self._member(writer, reader.at(member), f"{path}allOf/{index}/")
        for keyword in _SUMS:
            if keyword in reader.schema:
                self._sum(writer, reader, keyword, path)
        if "not" in reader.schema:
            self._not(writer, reader, path)
        self._condition(writer, reader, path)

    def _not(self, writer: Side, reader: Side, path: str) -> None:
        """All that the reader forbids, the writer has forbidden."""
        strict, self.strict = self.strict, True
        try:
            forbidden = [side for side in (writer, *self._members(writer)) if "not" in side.schema]
            forbidden_target = reader.at(reader.schema["not"])
            held = any(self.holds(forbidden_target, side.at(side.schema["not"])) for side in forbidden)
        finally:
            self.strict = strict
        if not held:
            self.add("NOT_TYPE_EXTENDED", f"{path}not", "the schema forbids documents that the other one allows")

    def _condition(self, writer: Side, reader: Side, path: str) -> None:
        if "if" not in reader.schema or ("then" not in reader.schema and "else" not in reader.schema):
            return
        old, new = (self.derived(side.schema, "if", lambda side=side: [_condition_of(side)])[0]  # type: ignore[misc]  # bound now
                    for side in (writer, reader))  # fmt: skip
        if not self.same.holds(old, new):
            self.add("CONDITION_CHANGED", f"{path}if", "if, then and else must stay as they are")

    # Values

    def _finite(self, writer: Side, reader: Side, path: str) -> bool:
        """A writer with enum or const: simply try its values. True when that has settled it."""
        values = listed_values(writer.schema)
        if values is None:
            return False
        if writer.schema.keys() - ANNOTATIONS - _LISTING:
            values = [value for value in values if self._values.accepted(writer, value, unsure=True)]
        listed = listed_values(reader.schema)
        if listed is not None and not reader.schema.keys() - ANNOTATIONS - _LISTING:
            refused = self._values.missing(values, listed)
        else:
            refused = [value for value in values if not self._values.accepted(reader, value, unsure=False)]
        if refused:
            kind = "TYPE_CHANGED"
            if listed is not None:
                kind = "ENUM_ARRAY_NARROWED" if len(refused) < len(values) else "ENUM_ARRAY_CHANGED"
            shown = json.dumps(refused[:20])[:200]
            self.add(kind, f"{path}enum", f"the values {shown} are not accepted any more")
        return True

    def _enumerated(self, writer: Side, reader: Side, path: str) -> None:
        """A writer that lists nothing itself: one of its allOf or every branch of a sum must list what is accepted."""
        [listed] = self.derived(reader.schema, "enum", lambda: [
            reader.at({name: reader.schema[name] for name in _LISTING if name in reader.schema})
        ])  # fmt: skip
        ways = [[member] for member in self._members(writer)]
        ways += [self._parts(writer, keyword) for keyword in _SUMS]
        if not any(parts and all(self.holds(part, listed) for part in parts) for parts in ways):
            self.add("ENUM_ARRAY_ADDED", f"{path}enum", "only listed values are accepted now")

    # Combinations

    def _members(self, side: Side) -> Iterator[Side]:
        """One by one: a caller that has found the right member does not pay for the rest."""
        return (side.at(member) for member in side.schema.get("allOf", ()))

    def _member(self, writer: Side, part: Side, path: str) -> None:
        """A member of the reader's allOf: it must follow from the writer as a whole or from one of its own members."""
        if any(self.holds(member, part) for member in self._members(writer)):
            return
        self.compare(writer, part, path)

    def _sum(self, writer: Side, reader: Side, keyword: str, path: str) -> None:
        branches = [reader.at(branch) for branch in reader.schema[keyword]]
        if self.strict and keyword == "oneOf" and len(branches) > 1:
            # Several branches may hold at once.
            self.add("SUM_TYPE_NARROWED", f"{path}{keyword}", "oneOf inside not must stay as it is")
            return
        if any(self.holds(writer, branch) for branch in branches):
            return
        for own in (*_SUMS, "type"):
            parts = self._parts(writer, own)
            if parts and all(any(self.holds(part, branch) for branch in branches) for part in parts):
                return
        [alone] = self.derived(reader.schema, keyword, lambda: [reader.at({keyword: reader.schema[keyword]})])
        if any(self.holds(member, alone) for member in self._members(writer)):
            return
        had = any(own in writer.schema for own in _SUMS)
        kind = "SUM_TYPE_NARROWED" if had else "COMBINED_TYPE_CHANGED"
        self.add(kind, f"{path}{keyword}", f"no branch of {keyword} accepts all that the other schema accepts")

    def _parts(self, writer: Side, keyword: str) -> list[Side]:
        return self.derived(writer.schema, f"part {keyword}", lambda: _parts(writer, keyword))

    # The keywords of one schema

    def _own_keywords(self, writer: Side, reader: Side, path: str) -> None:
        evaluates = not _UNEVALUATED.isdisjoint(reader.schema) and self._evaluates_the_same(writer, reader)
        if evaluates:
            [own] = self.derived(reader.schema, "own, evaluated", lambda: [_own_evaluated(reader)])
        else:
            [own] = self.derived(reader.schema, "own", lambda: [_own(reader, self.budget)])
        if own.anything:
            return
        if any(self.holds(member, own) for member in self._members(writer)):
            return
        for keyword in _SUMS:
            parts = self._parts(writer, keyword)
            if parts and all(self.holds(part, own) for part in parts):
                return
        [plain_writer] = self.derived(
            writer.schema, "plain", lambda: [writer.at(plain(writer, self.budget, sure=False))]
        )
        self._keywords(plain_writer, own, path)

    def _evaluates_the_same(self, writer: Side, reader: Side) -> bool:
        """Whether all that unevaluatedProperties and unevaluatedItems look at is the same on both sides."""
        old, new = (self.derived(side.schema, "evaluating", lambda side=side: [_evaluating(side)])[0]  # type: ignore[misc]  # bound now
                    for side in (writer, reader))  # fmt: skip
        return self.same.holds(old, new)

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
                            was, now = json.dumps(old.get(keyword))[:200], json.dumps(new.get(keyword))[:200]
                            self.add(kind, f"{path}{keyword}", f"{keyword} was {was}, is {now}")
        if "object" in before:
            compare_object(self, writer, reader, path)
        if "array" in before:
            compare_array(self, writer, reader, path)
        for name in sorted(new.keys() - KNOWN):
            if name.startswith("$") and old.get(name) != new[name]:
                self.add("KEYWORD_CHANGED", f"{path}{name}", f"{name} is not understood and has changed")


def _breadth(schema: dict[str, Any]) -> int:
    """What its lists and tables hold: `required`, `items`, `anyOf` are walked for each pair that is compared."""
    return sum(len(value) for value in schema.values() if isinstance(value, list | dict))


def _beside(side: Side, target: Side, beside: dict[str, Any]) -> Side:
    return side.at({**beside, "allOf": [Anchored(target.schema, target.home), *beside.get("allOf", ())]})


def _condition_of(side: Side) -> Side:
    return side.at({name: side.schema[name] for name in ("if", "then", "else") if name in side.schema})


def _own(reader: Side, budget: Budget) -> Side:
    """A schema's keywords without the combining ones."""
    schema = plain(reader, budget, sure=True)
    return reader.at({name: value for name, value in schema.items() if name not in _COMBINED})


def _own_evaluated(reader: Side) -> Side:
    dropped = _COMBINED | _UNEVALUATED
    return reader.at({name: value for name, value in reader.schema.items() if name not in dropped})


def _evaluating(side: Side) -> Side:
    return side.at({name: value for name, value in side.schema.items() if name in _EVALUATING})


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
