"""From a type's name and a text to a parsed schema. Each language is imported when the first schema of it comes."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.registry.records import AVRO, JSON, PROTOBUF
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Dependency, ParsedSchema, SchemaProblem


def parse_schema(
    schema_type: str, text: str, dependencies: Sequence[Dependency] = (), budget: Budget | None = None
) -> ParsedSchema:
    """Raises SchemaProblem, one line, if the text is no schema of that type or needs more steps than the budget."""
    if schema_type == AVRO:
        from ottla.registry.schemas.avro_schema import AvroSchema

        return AvroSchema(text, dependencies, budget)
    if schema_type == JSON:
        from ottla.registry.schemas.json_schema import JsonSchema

        return JsonSchema(text, dependencies, budget)
    if schema_type == PROTOBUF:
        from ottla.registry.schemas.protobuf_schema import ProtobufSchema

        return ProtobufSchema(text, dependencies, budget)
    raise SchemaProblem(f"Invalid schema type {schema_type}")
