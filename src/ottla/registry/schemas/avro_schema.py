"""Avro: parsed and judged by the Apache avro package, printed as Java prints it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import make_avsc_object

from ottla.registry.records import AVRO
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
                return f"not Avro of its schema: {_one_line(error) or type(error).__name__}"
            left = len(payload) - stream.tell()
            return f"{left} bytes are left after the Avro value" if left else None

        return check


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaProblem(f"not JSON: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
