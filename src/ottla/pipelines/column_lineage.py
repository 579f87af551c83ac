"""Which columns of its inputs each column of a step's result is made of, from Spark's analysed plan.

A column behind an operator that Spark cannot look into (a Python function over groups, the state of a join with a table)
has no sources here. Spark Connect has no plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

ColumnSource = tuple[str, str, bool]
"""The input's parameter, its column, and whether the value is unchanged."""


class _Origin(NamedTuple):
    """What an attribute of a plan is computed from: ids of other attributes."""

    sources: tuple[int, ...]
    unchanged: bool


def column_sources(result: DataFrame, inputs: Mapping[str, DataFrame]) -> dict[str, list[ColumnSource]]:
    """By column of the result, without columns that begin with _ and columns whose sources are not known."""
    if is_remote():
        return {}
    columns = {
        identity: (parameter, name) for parameter, frame in inputs.items() for identity, name in _output(_plan(frame))
    }
    origins: dict[int, _Origin] = {}
    plan = _plan(result)
    _look(plan, columns, origins)
    sources_of = {name: sorted(_resolved(identity, columns, origins, set())) for identity, name in _output(plan)}
    return {name: sources for name, sources in sources_of.items() if sources and not name.startswith("_")}


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark's only way to the plan


def _output(plan: Any) -> list[tuple[int, str]]:
    return [(attribute.exprId().id(), attribute.name()) for attribute in _items(plan.output())]


def _items(scala: Any) -> Iterator[Any]:
    return (scala.apply(index) for index in range(scala.size()))


def _look(plan: Any, columns: Mapping[int, tuple[str, str]], origins: dict[int, _Origin]) -> None:
    """Ends where a plan is that of an input."""
    identities = [identity for identity, _ in _output(plan)]
    if all(identity in columns for identity in identities):
        return
    children = list(_items(plan.children()))
    for child in children:
        _look(child, columns, origins)
    for expression in _items(plan.expressions()):
        if expression.getClass().getSimpleName() == "Alias":
            sources = tuple(attribute.exprId().id() for attribute in _items(expression.references().toSeq()))
            is_plain = expression.child().getClass().getSimpleName() == "AttributeReference"
            origins[expression.exprId().id()] = _Origin(sources, is_plain)
    if plan.getClass().getSimpleName() == "Union":
        rows = [[identity for identity, _ in _output(child)] for child in children]
        for position, identity in enumerate(identities):
            origins[identity] = _Origin(tuple(row[position] for row in rows), unchanged=True)


def _resolved(
    identity: int, columns: Mapping[int, tuple[str, str]], origins: Mapping[int, _Origin], seen: set[int]
) -> set[ColumnSource]:
    if identity in columns:
        return {(*columns[identity], True)}
    if identity in seen or identity not in origins:
        return set()
    origin = origins[identity]
    resolved = set()
    for source in origin.sources:
        for parameter, name, unchanged in _resolved(source, columns, origins, seen | {identity}):
            resolved.add((parameter, name, unchanged and origin.unchanged))
    return resolved
