"""Avro: parsed and judged by the Apache avro package, printed as Java prints it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import make_avsc_object

from ottla.payloads.avro import AvroError, AvroReader
from ottla.registry.records import AVRO
from ottla.registry.schemas.avro_defaults import invalid_default
from ottla.registry.schemas.avro_explanation import Explanation
from ottla.registry.schemas.avro_text import canonical_text
from ottla.registry.schemas.parsed import Dependency, Incompatibility, SchemaProblem


class AvroSchema:
    schema_type = AVRO

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        self._json = _loads(text)
        self._dependencies = [_loads(dependency.schema) for dependency in dependencies]
        names = Names()
        try:
            for dependency in self._dependencies:
                make_avsc_object(dependency, names)
            self.schema: Any = make_avsc_object(self._json, names)
            self.canonical = canonical_text(self._json)
        except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SchemaProblem(_one_line(error)) from error

    def normalized(self) -> str:
        return canonical_text(self._json, sort_extras=True)

    def serialized(self) -> str:
        return self.canonical

    def incompatibilities(self, writer: AvroSchema) -> list[Incompatibility]:
        checker: Any = ReaderWriterCompatibilityChecker
        result = checker().get_compatibility(self.schema, writer.schema)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        reasons = Explanation().compare(self.schema, writer.schema, "/")
        path = ", ".join(sorted(result.locations))
        return reasons or [
            Incompatibility(kind.name.upper(), path, "; ".join(sorted(result.messages)))
            for kind in result.incompatibilities
        ]

    def check_new(self) -> None:
        """As Confluent: a schema that is registered has good defaults; one that was imported or stored may not."""
        try:
            problem = invalid_default(self.schema)
        except RecursionError as error:
            raise SchemaProblem("the defaults are nested too deep") from error
        if problem is not None:
            raise SchemaProblem(problem)

    def validator(self) -> Callable[[bytes], str | None]:
        try:
            reader = AvroReader(self._json, self._dependencies)
        except AvroError as error:
            raise SchemaProblem(_one_line(error)) from error

        def check(payload: bytes) -> str | None:
            try:
                reader.read_whole(payload)
            except AvroError as error:
                return str(error)
            return None

        return check


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaProblem(f"not JSON: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
