"""Avro: parsed by the Apache avro package, judged by `avro_explanation.py`, printed as Java prints it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from avro.errors import AvroException, IgnoredLogicalType
from avro.name import Names
from avro.schema import make_avsc_object

from ottla.registry.records import AVRO
from ottla.registry.schemas.avro_explanation import Explanation
from ottla.registry.schemas.avro_text import canonical_text
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.json_text import load_json, one_line
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem

warnings.filterwarnings("ignore", category=IgnoredLogicalType)
"""A logical type that does not fit is ignored, as Avro says. Python would remember each text of a warning for ever."""
_MAX_DEPTH = 200
_STEPS_A_NODE = 5
"""The avro package takes about this many microseconds for a node of the JSON."""


class AvroSchema:
    schema_type = AVRO

    def __init__(self, text: str, dependencies: Sequence[Dependency] = (), budget: Budget | None = None) -> None:
        budget = budget or Budget()
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
        return Explanation(budget or Budget()).compare(self.schema, writer.schema, "/")

    def validator(self) -> Callable[[bytes], str | None]:
        from fastavro import parse_schema, schemaless_reader

        named: dict[str, Any] = {}
        for dependency in self._dependencies:
            parse_schema(dependency, named_schemas=named)
        parsed = parse_schema(self._json, named_schemas=named)

        def check(payload: bytes) -> str | None:
            stream = BytesIO(payload)
            try:
                schemaless_reader(stream, parsed, None)
            except (ValueError, EOFError, TypeError, KeyError, IndexError, OverflowError, MemoryError) as error:
                return f"not Avro of its schema: {one_line(error) or type(error).__name__}"
            left = len(payload) - stream.tell()
            return f"{left} bytes are left after the Avro value" if left else None

        return check


def _loads(text: str, budget: Budget) -> Any:
    before = budget.spent
    value = load_json(text, budget, max_depth=_MAX_DEPTH)
    budget.spend((budget.spent - before) * (_STEPS_A_NODE - 1))
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            fields = each.get("fields")
            # The avro package looks through all names before for each field.
            budget.spend(len(fields) ** 2 // 200 if isinstance(fields, list) else 0)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return value
