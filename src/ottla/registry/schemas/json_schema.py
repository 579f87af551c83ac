"""JSON Schema: parsed and checked by jsonschema-rs (drafts 4 to 2020-12), judged by the rules of `json_rules.py`.

Without `$schema` the draft is 7, as Confluent has it. References are found by the name that `$ref` uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from ottla.payloads.json_text import read_json
from ottla.registry.records import JSON
from ottla.registry.schemas.budget import Budget, given_or_new
from ottla.registry.schemas.json_documents import Documents
from ottla.registry.schemas.json_patterns import OPTIONS, spend_patterns
from ottla.registry.schemas.json_rules import Comparison
from ottla.registry.schemas.json_text import dump_json, load_json, one_line
from ottla.registry.schemas.json_values import DRAFT_7
from ottla.registry.schemas.json_weight import weight
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem, Validator

_MAX_DEPTH = 100
_MAX_EXPLAINED = 1_000_000
"""Bytes of a value times the weight of its schema. An explanation names each branch of each `anyOf` inside each other, and
the value: of a recursive schema and 100 bytes it may take hours."""


_QUICK_BYTES = 256 * 1024
_QUICK_STEPS = 10_000_000
"""Bytes of a value times the weight of its schema: about 30 ms."""


class JsonSchema:
    schema_type = JSON

    def __init__(self, text: str, dependencies: Sequence[Dependency] = (), budget: Budget | None = None) -> None:
        budget = given_or_new(budget)
        self.document = load_json(text, budget, max_depth=_MAX_DEPTH)
        if not isinstance(self.document, dict | bool):
            raise SchemaProblem("a JSON Schema is an object or a boolean")
        references = {
            dependency.name: load_json(dependency.schema, budget, max_depth=_MAX_DEPTH) for dependency in dependencies
        }
        spend_patterns([self.document, *references.values()], budget)
        self.documents = Documents(self.document, references, budget)
        self._validator = self._compile()
        self._weight = weight(self.documents.root, budget)
        self.canonical = dump_json(self.document)

    def _compile(self) -> Any:
        schema = self.document
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFT_7, **schema}
        try:
            return jsonschema_rs.validator_for(schema, retriever=self.documents.retrieve, pattern_options=OPTIONS)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise SchemaProblem(_first_line(error)) from error

    def normalized(self) -> str:
        return dump_json(self.document, sort_keys=True)

    def serialized(self) -> str:
        return self.canonical

    def check_new(self) -> None:
        """Nothing: what is no schema is refused by the constructor."""

    def accepts(self, value: Any) -> bool:
        return bool(self._validator.is_valid(value))

    def incompatibilities(self, writer: JsonSchema, budget: Budget | None = None) -> list[Incompatibility]:
        return Comparison(writer.documents, self.documents, given_or_new(budget)).run()

    def validator(self) -> Validator:
        def check(payload: bytes) -> str | None:
            try:
                value = read_json(payload)
            except ValueError as problem:
                return f"not JSON: {_first_line(problem)}"
            if self._validator.is_valid(value):
                return None
            if self._weight.recursive or len(payload) * self._weight.total > _MAX_EXPLAINED:
                return "it does not match its schema"
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                at = "/".join(str(step) for step in error.instance_path)
                return f"{_first_line(error.message)} at /{at}"
            return None

        # Lists of `enum` are searched from their beginning: they are in the length of the text.
        steps = (self._weight.total + len(self.canonical) // 16) * _pattern_steps(self.canonical)
        return Validator(check, min(_QUICK_BYTES, _QUICK_STEPS // steps))


def _pattern_steps(text: str) -> int:
    """How much longer one check may take because of the regular expressions of a schema."""
    if '"pattern' not in text:
        return 1
    return 1000 if re.search(r"\(\?[=!<]|\\\\[1-9k]", text) else 50


def _first_line(error: object) -> str:
    return one_line(str(error)[:2000].partition("\n")[0])
