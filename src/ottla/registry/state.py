"""The state of the registry: replayed from the records of its topic, changed by nothing else, without I/O.

Every instance replays the same log in the same order and so holds the same state. Content is kept as the record had it;
schemas are parsed when a request needs them (`catalogue.py`), so that a start with 100,000 of them is quick.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TypeVar

import msgspec

from ottla.registry.records import (
    CLEAR_SUBJECT,
    CONFIG,
    DELETE_SUBJECT,
    MODE,
    NOOP,
    SCHEMA,
    JsonObject,
    Key,
    SchemaReference,
    SchemaValue,
    config_record,
    decode_delete,
    decode_ids,
    decode_key,
    decode_object,
    decode_schema,
    delete_subject_record,
    ids_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from ottla.registry.subjects import DEFAULT_CONTEXT, context_of, in_context

_Value = TypeVar("_Value")

GLOBAL = ""
"""The subject of what holds for everybody."""


def digest(
    schema: str, references: tuple[SchemaReference, ...], metadata: JsonObject | None, rule_set: JsonObject | None
) -> bytes:
    """Equal for equal schemas, and the source of the guid (Confluent's for schemas without metadata and rules)."""
    md5 = hashlib.md5(schema.encode(), usedforsecurity=False)
    for reference in references:
        md5.update(f"{reference.name}{reference.subject}".encode())
        md5.update(reference.version.to_bytes(4, "big", signed=True))
    for extra in (metadata, rule_set):
        if extra is not None:
            md5.update(b"\x01" + msgspec.json.encode(extra, order="deterministic"))
    return md5.digest()


def guid_of(value: SchemaValue) -> str:
    return str(uuid.UUID(bytes=digest(value.schema, value.references, value.metadata, value.rule_set)))


class Context:
    """The ids of one context."""

    __slots__ = ("by_digest", "by_id", "kept_id", "max_id")

    def __init__(self) -> None:
        self.by_id: dict[int, dict[tuple[str, int], SchemaValue]] = {}
        self.by_digest: dict[bytes, int] = {}
        self.max_id = 0
        self.kept_id = 0
        """The largest id that a NOOP record has written down."""


class RegistryState:
    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, SchemaValue]] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.configs: dict[str, JsonObject] = {}
        self.modes: dict[str, str] = {}
        self.referenced_by: dict[tuple[str, int], set[tuple[str, int]]] = {}

    # Look-ups

    def context(self, name: str) -> Context:
        return self.contexts.get(name) or Context()

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaValue]:
        """In order of version."""
        subject_versions = self.subjects.get(subject, {})
        return [
            subject_versions[number]
            for number in sorted(subject_versions)
            if deleted or not subject_versions[number].deleted
        ]

    def by_id(self, context: str, schema_id: int) -> dict[tuple[str, int], SchemaValue]:
        return self.context(context).by_id.get(schema_id, {})

    def by_guid(self, guid: bytes) -> SchemaValue | None:
        for context in self.contexts.values():
            schema_id = context.by_digest.get(guid)
            if schema_id is not None:
                return next(iter(context.by_id[schema_id].values()))
        return None

    def max_ids(self) -> dict[str, int]:
        return {name: context.max_id for name, context in self.contexts.items() if context.max_id}

    def kept(self, context: str) -> bool:
        """Whether the largest id would survive without the version that has it."""
        schema_context = self.context(context)
        return schema_context.kept_id >= schema_context.max_id

    # Replay

    def replay(self, key_bytes: bytes, value: bytes | None) -> None:
        """Applies one record. Raises msgspec's errors for a record in a different format."""
        key = decode_key(key_bytes)
        if key.keytype == SCHEMA:
            self._replay_schema(key, value)
        elif key.keytype == CONFIG:
            _set(self.configs, key.subject or GLOBAL, decode_object(value) if value else None)
        elif key.keytype == MODE:
            mode = decode_object(value).get("mode") if value else None
            _set(self.modes, key.subject or GLOBAL, str(mode) if mode else None)
        elif key.keytype == DELETE_SUBJECT and value:
            self._replay_delete_subject(key.subject or "", decode_delete(value).version)
        elif key.keytype == CLEAR_SUBJECT:
            for number, schema_version in list(self.subjects.get(key.subject or "", {}).items()):
                if schema_version.deleted:
                    self._forget(key.subject or "", number)
        elif key.keytype == NOOP and value:
            for name, max_id in decode_ids(value).max_ids.items():
                context = self._own_context(name)
                context.max_id = max(context.max_id, max_id)
                context.kept_id = max(context.kept_id, max_id)

    def _own_context(self, name: str) -> Context:
        context = self.contexts.get(name)
        if context is None:
            context = self.contexts[name] = Context()
        return context

    def _replay_schema(self, key: Key, data: bytes | None) -> None:
        subject, version = key.subject or "", key.version or 0
        if version in self.subjects.get(subject, {}):
            self._forget(subject, version)
        if not data:
            return
        value = decode_schema(data)
        context = self._own_context(context_of(subject))
        self.subjects.setdefault(subject, {})[version] = value
        context.by_id.setdefault(value.id, {})[subject, version] = value
        # The smallest id of a schema is its id, should an import have given it two.
        content = digest(value.schema, value.references, value.metadata, value.rule_set)
        if context.by_digest.setdefault(content, value.id) > value.id:
            context.by_digest[content] = value.id
        context.max_id = max(context.max_id, value.id)
        for target in reference_targets(value) if value.references else ():
            self.referenced_by.setdefault(target, set()).add((subject, version))

    def _forget(self, subject: str, version: int) -> None:
        value = self.subjects[subject].pop(version)
        if not self.subjects[subject]:
            del self.subjects[subject]
        context = self.contexts[context_of(subject)]
        holders = context.by_id[value.id]
        del holders[subject, version]
        if not holders:
            del context.by_id[value.id]
            content = digest(value.schema, value.references, value.metadata, value.rule_set)
            if context.by_digest.get(content) == value.id:
                del context.by_digest[content]
        for target in reference_targets(value):
            holders_of = self.referenced_by.get(target, set())
            holders_of.discard((subject, version))
            if not holders_of:
                self.referenced_by.pop(target, None)

    def _replay_delete_subject(self, subject: str, up_to: int) -> None:
        for number, value in self.subjects.get(subject, {}).items():
            if number <= up_to:
                value.deleted = True

    # Repair

    def record_for(self, key_bytes: bytes) -> tuple[bytes, bytes | None]:
        """The record with the current value of a key, to write over a record that lost a race (`log.py`)."""
        key = decode_key(key_bytes)
        subject = key.subject or GLOBAL
        if key.keytype == SCHEMA:
            value = self.subjects.get(subject, {}).get(key.version or 0)
            return schema_tombstone(subject, key.version or 0) if value is None else schema_record(value)
        if key.keytype == CONFIG:
            return config_record(key.subject, self.configs.get(subject))
        if key.keytype == MODE:
            return mode_record(key.subject, self.modes.get(subject))
        if key.keytype == DELETE_SUBJECT:
            up_to = self._deleted_up_to(subject)
            return delete_subject_record(subject, up_to) if up_to else (key_bytes, None)
        return ids_record(self.max_ids()) if key.keytype == NOOP else (key_bytes, None)

    def _deleted_up_to(self, subject: str) -> int:
        up_to = 0
        for value in self.versions(subject, deleted=True):
            if not value.deleted:
                break
            up_to = value.version
        return up_to


def reference_targets(value: SchemaValue) -> list[tuple[str, int]]:
    """A reference without a context is to the context of the schema that makes it."""
    context = context_of(value.subject)
    return [(in_context(context, reference.subject), reference.version) for reference in value.references]


def _set(table: dict[str, _Value], subject: str, value: _Value | None) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value
