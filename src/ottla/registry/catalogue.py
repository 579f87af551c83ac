"""Schemas with all that they refer to: references looked up in the state, pinned, circles refused, their number limited."""

from __future__ import annotations

import msgspec

from ottla.registry.errors import invalid_schema
from ottla.registry.records import MAX_INT, SchemaReference, SchemaValue
from ottla.registry.schema_jobs import SchemaSource
from ottla.registry.schemas.budget import Budget
from ottla.registry.schemas.parsed import Dependency, SchemaProblem
from ottla.registry.state import RegistryState
from ottla.registry.subjects import context_of, in_context

MAX_REFERENCES = 500
"""Schemas that one may bring with it, those of its references included."""
_MAX_DEPTH = 100
_MAX_LOOKUPS = 20_000
_LATEST = -1


class Catalogue:
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def stored(self, value: SchemaValue) -> SchemaSource:
        return self.source(context_of(value.subject), value.schema_type, value.schema, value.references, deleted=True)

    def pinned(
        self, context: str, schema_type: str, references: tuple[SchemaReference, ...], *, deleted: bool
    ) -> tuple[SchemaReference, ...]:
        """Replaces version -1 by the number of the latest version: a later version may be a different schema."""
        if len(references) > MAX_REFERENCES:
            raise invalid_schema(f"more than {MAX_REFERENCES} references", schema_type)
        pinned_references = []
        for reference in references:
            if reference.version != _LATEST and not 1 <= reference.version <= MAX_INT:
                text = f"the reference {reference.name} has the version {reference.version}: not in [1, 2^31-1]"
                raise invalid_schema(text, schema_type)
            try:
                version = self._find(context, reference, deleted=deleted).version
            except SchemaProblem as problem:
                raise invalid_schema(str(problem), schema_type) from problem
            pinned_references.append(msgspec.structs.replace(reference, version=version))
        return tuple(pinned_references)

    def source(
        self, context: str, schema_type: str, text: str, references: tuple[SchemaReference, ...], *, deleted: bool
    ) -> SchemaSource:
        """42201 with the reason when a reference leads nowhere or in a circle. `deleted`: soft-deleted ones count."""
        if not text.strip():
            raise invalid_schema("Empty schema", schema_type)
        into: dict[str, Dependency] = {}
        try:
            self._collect(context, references, into, (), Budget(_MAX_LOOKUPS), deleted=deleted)
        except SchemaProblem as problem:
            raise invalid_schema(str(problem), schema_type) from problem
        return SchemaSource(schema_type, text, tuple(into.values()))

    def _collect(
        self,
        context: str,
        references: tuple[SchemaReference, ...],
        into: dict[str, Dependency],
        above: tuple[tuple[str, int], ...],
        budget: Budget,
        *,
        deleted: bool,
    ) -> None:
        """Depth first, so that each comes after what it needs. A reference is to the context of who makes it."""
        if len(above) > _MAX_DEPTH:
            raise SchemaProblem(f"references nested more than {_MAX_DEPTH} deep")
        for reference in references:
            budget.spend()
            if reference.name in into:
                continue
            value = self._find(context, reference, deleted=deleted)
            target = (value.subject, value.version)
            if target in above:
                raise SchemaProblem(f"the references go in a circle through {reference.subject} {reference.version}")
            inner = context_of(value.subject)
            self._collect(inner, value.references, into, (*above, target), budget, deleted=deleted)
            into.setdefault(reference.name, Dependency(reference.name, value.schema))
            if len(into) > MAX_REFERENCES:
                raise SchemaProblem(f"more than {MAX_REFERENCES} references")

    def _find(self, context: str, reference: SchemaReference, *, deleted: bool) -> SchemaValue:
        subject, version = in_context(context, reference.subject), reference.version
        if version == _LATEST:
            versions = self._state.versions(subject)
            schema_version = versions[-1] if versions else None
        else:
            schema_version = self._state.subjects.get(subject, {}).get(version)
        if schema_version is None or (schema_version.deleted and not deleted):
            raise SchemaProblem(f'No schema reference found for subject "{reference.subject}" and version {version}')
        return schema_version
