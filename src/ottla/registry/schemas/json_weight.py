"""How often one place of a document may be looked at: refuses schemas whose checking grows like 2^n.

`allOf` of two `$ref` to the next definition, and so on forty times: a page of text, 2^40 checks of one value.
(jsonschema-rs remembers results for recursive definitions only.) Each schema gets a weight here: the number of schemas
for its own place of the document, and for the heaviest place below. A schema that refers to itself without going into
the document means nothing, and is refused too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.registry.schemas.budget import Budget, TooComplex
from ottla.registry.schemas.json_documents import Side
from ottla.registry.schemas.json_keywords import IN_PLACE
from ottla.registry.schemas.json_shapes import check_shape
from ottla.registry.schemas.parsed import SchemaProblem

MAX_WEIGHT = 20_000
_EVERYWHERE = "*"
"""The label of schemas for members or items of any name or number."""


@dataclass(slots=True)
class _Node:
    in_place: list[int] = field(default_factory=list)
    below: list[tuple[str, int]] = field(default_factory=list)

    def everything(self) -> list[int]:
        return [*self.in_place, *(key for _, key in self.below)]


class Weight(NamedTuple):
    total: int
    recursive: bool


def weight(root: Side, budget: Budget) -> Weight:
    """The weight of a schema; TooComplex over MAX_WEIGHT, SchemaProblem for a circle."""
    nodes = _nodes(root, budget)
    closures: dict[int, Counter[int]] = {}
    for key in _postorder(list(nodes), lambda key: nodes[key].in_place, circles=False):
        closure = closures[key] = Counter({key: 1})
        for inner in nodes[key].in_place:
            budget.spend(len(closures[inner]))
            closure.update(closures[inner])
        _check(closure.total())
    weights: dict[int, int] = {}
    recursive = False
    for key in _postorder([id(root.schema)], lambda key: nodes[key].everything(), circles=True):
        recursive = recursive or not weights.keys() >= set(nodes[key].everything())
        weights[key] = _weigh(closures[key], nodes, weights, budget)
    return Weight(weights[id(root.schema)], recursive)


def _check(total: int) -> None:
    if total > MAX_WEIGHT:
        raise TooComplex(f"too complex: one value would be checked against more than {MAX_WEIGHT} schemas")


def _weigh(closure: Counter[int], nodes: dict[int, _Node], weights: dict[int, int], budget: Budget) -> int:
    places: Counter[str] = Counter()
    for key, count in closure.items():
        budget.spend(1 + len(nodes[key].below))
        for label, inner in nodes[key].below:
            # A schema that is not weighed yet is recursive: jsonschema-rs remembers its results.
            places[label] += count * weights.get(inner, 1)
    everywhere = places.pop(_EVERYWHERE, 0)
    total = closure.total() + everywhere + max(places.values(), default=0)
    _check(total)
    return total


def _nodes(root: Side, budget: Budget) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    waiting = [root]
    while waiting:
        side = waiting.pop()
        budget.spend()
        if id(side.schema) in nodes:
            continue
        check_shape(side.schema)
        node = nodes[id(side.schema)] = _Node()
        in_place = _in_place(side)
        # unevaluated... walks the schemas beside it once more.
        twice = 1 + any(name.startswith("unevaluated") for name in side.schema)
        node.in_place = [id(inner.schema) for inner in in_place] * twice
        below = _below(side)
        node.below = [(label, id(inner.schema)) for label, inner in below]
        waiting += [*in_place, *(inner for _, inner in below)]
    return nodes


def _in_place(side: Side) -> list[Side]:
    schema = side.schema
    sides = side.targets()
    for keyword in IN_PLACE:
        sides += [side.at(member) for member in schema.get(keyword, ())]
    sides += [side.at(schema[keyword]) for keyword in ("not", "if", "then", "else") if keyword in schema]
    for keyword in ("dependentSchemas", "dependencies"):
        sides += [
            side.at(dependency) for dependency in schema.get(keyword, {}).values() if not isinstance(dependency, list)
        ]
    return sides


def _below(side: Side) -> list[tuple[str, Side]]:
    schema = side.schema
    children = [(f".{name}", side.at(inner)) for name, inner in schema.get("properties", {}).items()]
    wide = list(schema.get("patternProperties", {}).values())
    items = schema.get("items", [])
    for number, inner in enumerate([*schema.get("prefixItems", ()), *(items if isinstance(items, list) else ())]):
        children.append((f"[{number}", side.at(inner)))
    wide += [] if isinstance(items, list) else [items]
    wide += [schema[keyword] for keyword in (
        "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems", "contains",
    ) if keyword in schema]  # fmt: skip
    return [*children, *((_EVERYWHERE, side.at(inner)) for inner in wide)]


def _postorder(starts: list[int], edges: Callable[[int], list[int]], *, circles: bool) -> list[int]:
    """Each node after those that it leads to; without recursion, for a chain may be as long as the document."""
    order: list[int] = []
    done: set[int] = set()
    for start in starts:
        path: dict[int, None] = {}
        stack = [(start, False)]
        while stack:
            key, finished = stack.pop()
            if finished:
                del path[key]
                done.add(key)
                order.append(key)
            elif key in path:
                if not circles:
                    raise SchemaProblem("a $ref leads back to itself without going into the document")
            elif key not in done:
                path[key] = None
                stack.append((key, True))
                stack += [(inner, False) for inner in edges(key) if inner not in done]
    return order
