"""Stored schemas as parsed ones: references looked up, circles refused, a bounded number kept."""

from __future__ import annotations

from collections import OrderedDict

from ottla.registry.errors import invalid_schema
from ottla.registry.records import SchemaReference, SchemaValue
from ottla.registry.schemas.parse import parse_schema
from ottla.registry.schemas.parsed import Dependency, ParsedSchema, SchemaProblem
from ottla.registry.state import RegistryState, digest
from ottla.registry.subjects import in_context

MAX_PARSED = 1000
MAX_REFERENCES = 500
"""Schemas that one may bring with it, those of its references included."""


class Catalogue:
    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._parsed: OrderedDict[tuple[str, str, bytes], ParsedSchema] = OrderedDict()

    def stored(self, value: SchemaValue) -> ParsedSchema:
        from ottla.registry.subjects import context_of

        return self.parse(context_of(value.subject), value.schema_type, value.schema, value.references)

    def parse(
        self, context: str, schema_type: str, text: str, references: tuple[SchemaReference, ...] = ()
    ) -> ParsedSchema:
        """42201 with the reason when it is no schema, or a reference leads nowhere or in a circle."""
        key = (context, schema_type, digest(text, references, None, None))
        found = self._parsed.get(key)
        if found is not None:
            self._parsed.move_to_end(key)
            return found
        if not text.strip():
            raise invalid_schema("Empty schema", schema_type)
        try:
            dependencies: dict[str, Dependency] = {}
            self._collect(context, references, dependencies, ())
            parsed = parse_schema(schema_type, text, list(dependencies.values()))
        except SchemaProblem as problem:
            raise invalid_schema(str(problem), schema_type) from problem
        self._parsed[key] = parsed
        if len(self._parsed) > MAX_PARSED:
            self._parsed.popitem(last=False)
        return parsed

    def _collect(
        self,
        context: str,
        references: tuple[SchemaReference, ...],
        into: dict[str, Dependency],
        above: tuple[tuple[str, int], ...],
    ) -> None:
        """Depth first, so that each comes after what it needs."""
        for reference in references:
            target = (in_context(context, reference.subject), reference.version)
            if target in above:
                raise SchemaProblem(f"the references go in a circle through {reference.subject} {reference.version}")
            value = self._find(*target)
            if value is None:
                raise SchemaProblem(
                    f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
                )
            if reference.name not in into:
                self._collect(context, value.references, into, (*above, target))
                into[reference.name] = Dependency(reference.name, value.schema)
            if len(into) > MAX_REFERENCES:
                raise SchemaProblem(f"more than {MAX_REFERENCES} references")

    def _find(self, subject: str, version: int) -> SchemaValue | None:
        if version == -1:
            versions = self._state.versions(subject)
            return versions[-1] if versions else None
        return self._state.subjects.get(subject, {}).get(version)
