"""Whether two schemas are the same: the same constraints in the same draft, and references that lead to the same again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_documents import Side
from ottla.registry.schemas.json_keywords import ANNOTATIONS, REFERENCES

_Pair = tuple[int, int]


class Sameness:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._digests: dict[int, tuple[Any, bytes]] = {}
        self._tops: dict[int, tuple[Any, bytes]] = {}
        self._pointing: dict[int, list[Side]] = {}
        self._verdicts: dict[_Pair, bool] = {}

    def holds(self, first_side: Side, second_side: Side) -> bool:
        """Compares the two sides and every pair of schemas that they refer to. Stores the verdict on each pair."""
        start = (id(first_side.schema), id(second_side.schema))
        above: dict[_Pair, _Pair | None] = {start: None}
        waiting = [(first_side, second_side)]
        while waiting:
            left, right = waiting.pop()
            pair = (id(left.schema), id(right.schema))
            self._budget.spend()
            verdict = self._verdicts.get(pair)
            targets = [] if verdict else self._targets(left, right)
            if verdict is False or targets is None:
                at: _Pair | None = pair
                while at is not None:
                    self._verdicts[at] = False
                    at = above[at]
                return False
            for below in targets:
                key = (id(below[0].schema), id(below[1].schema))
                if key not in above:
                    above[key] = pair
                    waiting.append(below)
        self._verdicts.update(dict.fromkeys(above, True))
        return True

    def _targets(self, left: Side, right: Side) -> list[tuple[Side, Side]] | None:
        """The pairs of schemas that the references of both sides lead to; None if the constraints of the two differ."""
        if left.schema is right.schema and left.home is right.home:
            return []
        if left.draft != right.draft or self._constraints(left) != self._constraints(right):
            return None
        target_pairs = []
        for left_reference, right_reference in zip(self._references(left), self._references(right), strict=True):
            here, there = left_reference.targets(), right_reference.targets()
            if len(here) != 1 or len(there) != 1:
                return None  # a dynamic reference: what it means depends on the way to it
            target_pairs.append((here[0], there[0]))
        return target_pairs

    def _references(self, side: Side) -> list[Side]:
        references = self._pointing.get(id(side.schema))
        if references is None:
            constraining = {name: value for name, value in side.schema.items() if name not in ANNOTATIONS}
            references = self._pointing[id(side.schema)] = list(self._walk(constraining, side))
        return references

    def _constraints(self, side: Side) -> bytes:
        """The digest of every keyword that constrains values. Definitions have no part: a reference leads to them."""
        cached_digest = self._tops.get(id(side.schema))
        if cached_digest is None:
            constraints = b"".join(
                f"{name!r}:".encode("utf-8", "surrogatepass") + self._digest(value) + b","
                for name, value in sorted(side.schema.items())
                if name not in ANNOTATIONS
            )
            cached_digest = self._tops[id(side.schema)] = (side.schema, constraints)
        return cached_digest[1]

    def _walk(self, value: Any, side: Side) -> Iterator[Side]:
        """The references below a value, by sorted names: schemas that differ only in the order of names are the same."""
        self._budget.spend()
        if isinstance(value, dict):
            side = side.at(value)
            if any(isinstance(value.get(keyword), str) for keyword in REFERENCES):
                yield side
            for _, inner in sorted(value.items()):
                yield from self._walk(inner, side)
        elif isinstance(value, list):
            for inner in value:
                yield from self._walk(inner, side)

    def _digest(self, value: Any) -> bytes:
        """A digest by sorted keys, from the digests of the parts. It separates 1 from True, which are equal in Python only."""
        if not isinstance(value, dict | list):
            return repr(value).encode("utf-8", "surrogatepass")
        cached_digest = self._digests.get(id(value))
        if cached_digest is None:
            self._budget.spend(1 + len(value))
            md5 = hashlib.md5(b"{" if isinstance(value, dict) else b"[", usedforsecurity=False)
            for name, inner in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
                md5.update(repr(name).encode("utf-8", "surrogatepass") + b":" + self._digest(inner) + b",")
            cached_digest = self._digests[id(value)] = (value, md5.digest())
        return cached_digest[1]
