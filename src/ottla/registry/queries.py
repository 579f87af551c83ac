"""What can be asked of the registry: answers from the state, no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.registry.catalogue import Catalogue
from ottla.registry.compatibility import BACKWARD, CompatibilityFinding, needed
from ottla.registry.errors import (
    compatibility_not_configured,
    invalid_version,
    mode_not_configured,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ottla.registry.records import MAX_INT, JsonObject, SchemaReference, SchemaValue
from ottla.registry.schema_jobs import SchemaSource
from ottla.registry.schema_work import SchemaWork
from ottla.registry.state import GLOBAL, RegistryState, digest, guid_of
from ottla.registry.subjects import DEFAULT_CONTEXT, context_of, local_name, qualified

READWRITE = "READWRITE"
_Item = TypeVar("_Item")


def page(items: Sequence[_Item], offset: int, limit: int) -> Sequence[_Item]:
    """Offset and limit as Confluent has them: a negative limit is none."""
    start = max(offset, 0)
    return items[start : start + limit] if limit >= 0 else items[start:]


def version_number(text: str) -> int | None:
    """A version of a path: None is the latest; 42202 when it is neither."""
    if text in {"latest", "-1"}:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MAX_INT:
        return int(text)
    raise invalid_version(text)


class Queries:
    def __init__(self, state: RegistryState, catalogue: Catalogue) -> None:
        self.state = state
        self.catalogue = catalogue

    # Subjects

    def subjects(self, prefix: str, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The prefix `:*:` means every context, else the prefix names the context (default: the default context)."""
        everywhere = prefix.startswith(":*:")
        local_prefix = prefix.removeprefix(":*:")
        matching_subjects = []
        for subject, versions in self.state.subjects.items():
            if everywhere:
                matches = local_name(subject).startswith(local_prefix) if local_prefix else True
            else:
                matches = subject.startswith(prefix) and (context_of(subject) == context_of(prefix))
            alive = any(not value.deleted for value in versions.values())
            if matches and (not alive if deleted_only else alive or deleted):
                matching_subjects.append(subject)
        return sorted(matching_subjects)

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        values = self.state.versions(subject, deleted=deleted or deleted_only)
        version_numbers = [value.version for value in values if value.deleted or not deleted_only]
        if not version_numbers:
            raise subject_not_found(subject)
        return version_numbers

    def version(self, subject: str, text: str, *, deleted: bool = False) -> SchemaValue:
        number = version_number(text)
        values = self.state.versions(subject, deleted=True)
        if not values or (not deleted and all(value.deleted for value in values)):
            raise subject_not_found(subject)
        if number is None:
            alive = [value for value in values if deleted or not value.deleted]
            return alive[-1]
        value = self.state.subjects[subject].get(number)
        if value is None or (value.deleted and not deleted):
            raise version_not_found(number)
        return value

    def look_up(
        self, subject: str, schema_type: str, text: str, request: Any, *, deleted: bool, check_subject: bool = True
    ) -> SchemaValue:
        """The newest version with this very schema."""
        values = self.state.versions(subject, deleted=deleted)
        if not values and check_subject:
            raise subject_not_found(subject)
        schema_key, extras = (text, request.references), digest("", (), request.metadata, request.rule_set)
        for value in reversed(values):
            if value.schema_type != schema_type or (value.schema, self._pinned(value)) != schema_key:
                continue
            if digest("", (), value.metadata, value.rule_set) == extras:
                return value
        raise schema_not_found()

    def _pinned(self, value: SchemaValue) -> tuple[SchemaReference, ...]:
        """The references of a schema, with version numbers; earlier releases stored -1 for the latest version."""
        if all(reference.version > 0 for reference in value.references):
            return value.references
        return self.catalogue.pinned(context_of(value.subject), value.schema_type, value.references, deleted=True)

    # Ids

    def by_id(self, schema_id: int, subject: str | None = None) -> SchemaValue:
        """Looks in the subject's context; for a bare subject without a match there, in all contexts."""
        context = context_of(subject) if subject else DEFAULT_CONTEXT
        values_by_subject = self.state.by_id(context, schema_id)
        if not values_by_subject and subject and context == DEFAULT_CONTEXT:
            for name in self.state.contexts:
                if qualified(name, subject) in self.state.subjects and self.state.by_id(name, schema_id):
                    values_by_subject = self.state.by_id(name, schema_id)
                    break
        if not values_by_subject:
            raise schema_not_found(schema_id)
        return next(
            (value for value in values_by_subject.values() if value.subject == subject),
            next(iter(values_by_subject.values())),
        )

    def by_guid(self, guid: str) -> SchemaValue:
        try:
            value = self.state.by_guid(uuid.UUID(guid).bytes)
        except ValueError:
            value = None
        if value is None:
            raise schema_not_found(guid)
        return value

    def holders(self, schema_id: int, subject: str | None, *, deleted: bool) -> list[SchemaValue]:
        """Every version that has the id."""
        value = self.by_id(schema_id, subject)
        schema_versions = self.state.by_id(context_of(value.subject), schema_id).values()
        alive = [schema_version for schema_version in schema_versions if deleted or not schema_version.deleted]
        return sorted(alive, key=lambda schema_version: (schema_version.subject, schema_version.version))

    def referenced_by(self, subject: str, version: int, *, deleted: bool = True) -> list[SchemaValue]:
        referrer_keys = self.state.referenced_by.get((subject, version), set())
        values = [self.state.subjects[name][number] for name, number in sorted(referrer_keys)]
        return [value for value in values if deleted or not value.deleted]

    # Settings

    def config(self, subject: str, *, inherited: bool) -> JsonObject:
        """Of the subject, or with `inherited` of what it falls back on: its context, then everybody."""
        for candidate in _fallbacks(subject) if inherited else (subject,):
            if candidate in self.state.configs:
                return {k: v for k, v in self.state.configs[candidate].items() if k != "subject"}
        if not inherited and subject != GLOBAL:
            raise compatibility_not_configured(subject)
        return {"compatibilityLevel": BACKWARD}

    def mode(self, subject: str, *, inherited: bool) -> str:
        override = self.state.modes.get(GLOBAL)
        if inherited and override == "READONLY_OVERRIDE":
            return override
        for candidate in _fallbacks(subject) if inherited else (subject,):
            if candidate in self.state.modes:
                return self.state.modes[candidate]
        if not inherited and subject != GLOBAL:
            raise mode_not_configured(subject)
        return READWRITE

    def versions_exist(self, subject: str) -> bool:
        """Whether an import into the subject (its whole context, everything) would meet versions."""
        if subject == GLOBAL:
            return bool(self.state.subjects)
        if subject.endswith(":") and subject.startswith(":."):
            return any(context_of(subject_name) == context_of(subject) for subject_name in self.state.subjects)
        return subject in self.state.subjects

    def contexts(self, sees: Callable[[str], bool] = lambda _: True) -> list[str]:
        used = {context_of(subject) for subject in self.state.subjects if sees(subject)}
        return sorted({DEFAULT_CONTEXT} | used)

    # Compatibility

    def level(self, subject: str) -> str:
        return str(self.config(subject, inherited=True).get("compatibilityLevel", BACKWARD))

    def findings(
        self,
        work: SchemaWork,
        subject: str,
        source: SchemaSource,
        metadata: JsonObject | None = None,
        only: str | None = None,
    ) -> tuple[str, list[CompatibilityFinding]]:
        """The level and what stands against it; `only` names one version (Confluent then drops TRANSITIVE)."""
        config = self.config(subject, inherited=True)
        level = self.level(subject)
        if only is None:
            values = self.state.versions(subject)
        else:
            values = [self.version(subject, only)]
            level = level.removesuffix("_TRANSITIVE")
        group = config.get("compatibilityGroup")
        if isinstance(group, str) and group:
            mine = metadata_property(metadata, group)
            values = [value for value in values if metadata_property(value.metadata, group) == mine]
        return level, work.findings(level, source, needed(level, values), self.catalogue.stored)


def metadata_property(metadata: JsonObject | None, name: str) -> Any:
    properties = (metadata or {}).get("properties") or {}
    return properties.get(name) if isinstance(properties, dict) else None


def _fallbacks(subject: str) -> tuple[str, ...]:
    context = context_of(subject)
    if context == DEFAULT_CONTEXT:
        return (subject, GLOBAL)
    return (subject, f":{context}:", GLOBAL)


def shown(value: SchemaValue, *, schema: str | None = None) -> JsonObject:
    """A version as the API answers it."""
    answer: JsonObject = {
        "subject": value.subject, "version": value.version, "id": value.id, "guid": guid_of(value),
    }  # fmt: skip
    answer |= value.optional_fields()
    answer["schema"] = value.schema if schema is None else schema
    if value.deleted:
        answer["deleted"] = True
    return answer
