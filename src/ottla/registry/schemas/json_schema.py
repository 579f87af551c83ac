"""JSON Schema: parsed and checked by jsonschema-rs (drafts 4 to 2020-12), judged by the rules of `json_rules.py`.

Without `$schema` the draft is 7, as Confluent has it. References are found by the name that `$ref` uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema_rs

from ottla.payloads.json_text import deeper_than, read_json
from ottla.registry.records import JSON
from ottla.registry.schemas.json_documents import Documents
from ottla.registry.schemas.json_rules import Comparison
from ottla.registry.schemas.json_values import DRAFT_7, PATTERNS
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem

_MAX_DEPTH = 100


class JsonSchema:
    schema_type = JSON

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        self.document = _loads(text)
        if not isinstance(self.document, dict | bool):
            raise SchemaProblem("a JSON Schema is an object or a boolean")
        self.documents = Documents(self.document, {d.name: _loads(d.schema) for d in dependencies})
        self._validator = self._compile()
        self.canonical = _dumps(self.document)

    def _compile(self) -> Any:
        schema = self.document
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFT_7, **schema}
        try:
            return jsonschema_rs.validator_for(schema, retriever=self.documents.retrieve, pattern_options=PATTERNS)
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaProblem(_first_line(error)) from error

    def normalized(self) -> str:
        return _dumps(self.document, sort_keys=True)

    def serialized(self) -> str:
        return self.canonical

    def check_new(self) -> None:
        """Nothing: what is no schema is refused by the constructor."""

    def accepts(self, value: Any) -> bool:
        return bool(self._validator.is_valid(value))

    def incompatibilities(self, writer: JsonSchema) -> list[Incompatibility]:
        return Comparison(writer.documents, self.documents).run(writer.document, self.document)

    def validator(self) -> Callable[[bytes], str | None]:
        def check(payload: bytes) -> str | None:
            try:
                value = read_json(payload)
            except ValueError as problem:
                return f"not JSON: {_first_line(problem)}"
            if self._validator.is_valid(value):
                return None
            error = next(iter(self._validator.iter_errors(value)))
            at = "/".join(str(step) for step in error.instance_path)
            return f"{_first_line(error.message)} at /{at}"

        return check


def _loads(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaProblem(f"not JSON: {_first_line(error)}") from error
    if deeper_than(value, _MAX_DEPTH):
        raise SchemaProblem(f"nested more than {_MAX_DEPTH} deep")
    return value


def _dumps(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0][:500]
