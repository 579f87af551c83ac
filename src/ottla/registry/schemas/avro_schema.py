"""Avro: parsed by the Apache avro package, judged by `avro_explanation.py`, printed as Java prints it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from avro.errors import AvroException, IgnoredLogicalType
from avro.name import Names
from avro.schema import make_avsc_object

from ottla.payloads.avro import AvroError, AvroReader
from ottla.registry.records import AVRO
from ottla.registry.schemas.avro_defaults import invalid_default
from ottla.registry.schemas.avro_explanation import Explanation
from ottla.registry.schemas.avro_text import canonical_text
from ottla.registry.schemas.budget import Budget, given_or_new
from ottla.registry.schemas.json_text import load_json, one_line
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem, Validator

warnings.filterwarnings("ignore", category=IgnoredLogicalType)
"""Avro's specification ignores a logical type that does not fit. Python would keep the text of each warning."""
_MAX_DEPTH = 200
_STEPS_A_NODE = 5
"""The avro package takes about this many microseconds for a node of the JSON."""


class AvroSchema:
    schema_type = AVRO

    def __init__(self, text: str, dependencies: Sequence[Dependency] = (), budget: Budget | None = None) -> None:
        budget = given_or_new(budget)
        self._json = _loads(text, budget)
        self._dependencies = [_loads(dependency.schema, budget) for dependency in dependencies]
        names = Names()
        try:
            for dependency in self._dependencies:
                make_avsc_object(dependency, names)
            self.schema: Any = make_avsc_object(self._json, names)
            self.canonical = canonical_text(self._json)
        except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SchemaProblem(one_line(error)) from error

    def normalized(self) -> str:
        return canonical_text(self._json, sort_extras=True)

    def serialized(self) -> str:
        return self.canonical

    def incompatibilities(self, writer: AvroSchema, budget: Budget | None = None) -> list[Incompatibility]:
        return Explanation(given_or_new(budget)).compare(self.schema, writer.schema, "/")

    def check_new(self) -> None:
        """As Confluent: a new schema must have valid defaults; an imported or stored schema may have wrong ones."""
        try:
            problem = invalid_default(self.schema)
        except RecursionError as error:
            raise SchemaProblem("the defaults are nested too deep") from error
        if problem is not None:
            raise SchemaProblem(problem)

    def validator(self) -> Validator:
        try:
            reader = AvroReader(self._json, self._dependencies)
        except AvroError as error:
            raise SchemaProblem(one_line(error)) from error

        def check(payload: bytes) -> str | None:
            try:
                reader.read_whole(payload)
            except AvroError as error:
                return str(error)
            return None

        return Validator(check, reader.quick_bytes)


def _loads(text: str, budget: Budget) -> Any:
    before = budget.spent
    value = load_json(text, budget, max_depth=_MAX_DEPTH)
    budget.spend((budget.spent - before) * (_STEPS_A_NODE - 1))
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            fields = node.get("fields")
            # The avro package looks through all names before for each field.
            budget.spend(len(fields) ** 2 // 200 if isinstance(fields, list) else 0)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return value
