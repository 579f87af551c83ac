"""What a request writes: the next record, or nothing more, or an error. Pure: the writer appends and replays.

A decision uses the current state and is valid only if its record becomes the next record of the log. The writer
(`writer.py`) checks that, and asks for a new decision if a different record came first. The writer also asks again
after each record, until there is nothing more to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ottla.registry.compatibility import shown
from ottla.registry.errors import (
    RegistryError,
    id_does_not_match,
    incompatible,
    invalid_mode,
    invalid_schema,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from ottla.registry.queries import Queries, version_number
from ottla.registry.records import (
    AVRO,
    MAX_INT,
    JsonObject,
    Record,
    SchemaReference,
    SchemaValue,
    config_record,
    delete_subject_record,
    delete_subject_tombstone,
    ids_record,
    mode_record,
    schema_record,
    schema_tombstone,
)
from ottla.registry.schema_jobs import SchemaSource
from ottla.registry.schema_work import SchemaWork
from ottla.registry.state import GLOBAL, digest
from ottla.registry.subjects import context_of

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_READ_ONLY = {"READONLY", "READONLY_OVERRIDE"}


class RegisterRequest(msgspec.Struct, rename="camel"):
    """The body of a registration; unknown fields are ignored."""

    schema: str | None = None
    schema_type: str | None = None
    references: tuple[SchemaReference, ...] | None = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    id: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None
    version: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None


@dataclass(slots=True)
class DecisionStep:
    """`record` is to be written; None: done, and `answer` is the answer."""

    record: Record | None = None
    answer: Any = None


def read(
    queries: Queries,
    work: SchemaWork,
    subject: str,
    request: RegisterRequest,
    *,
    normalize: bool,
    deleted: bool = False,
) -> tuple[SchemaSource, str]:
    """The schema of a request and the text that is stored for it. `deleted`: it may refer to what is soft deleted."""
    schema_type, context = request.schema_type or AVRO, context_of(subject)
    request.references = queries.catalogue.pinned(
        context, schema_type, tuple(request.references or ()), deleted=deleted
    )
    source = queries.catalogue.source(context, schema_type, request.schema or "", request.references, deleted=deleted)
    configured = queries.config(subject, inherited=True).get("normalize") is True
    return source, work.text(source, "normalized" if normalize or configured else "canonical")


class Register:
    def __init__(self, subject: str, request: RegisterRequest, work: SchemaWork, *, normalize: bool) -> None:
        self.subject, self.request, self.work, self.normalize = subject, request, work, normalize
        self._written: SchemaValue | None = None

    def __call__(self, queries: Queries) -> DecisionStep:
        subject, request = self.subject, self.request
        if self._written is not None:
            return DecisionStep(answer=self._written)
        imported = (request.id or 0) > 0
        source, text = read(queries, self.work, subject, request, normalize=self.normalize, deleted=imported)
        existing = self._existing(queries, source.schema_type, text)
        if existing is not None and request.id in {None, -1, existing.id}:
            return DecisionStep(answer=existing)
        mode = queries.mode(subject, inherited=True)
        _check_writable(mode, subject)
        if imported:
            return self._imported(queries, source.schema_type, text, mode)
        if mode == "IMPORT":
            raise not_permitted(f"Subject {subject} in context {context_of(subject)} is in import mode")
        self.work.check_new(source)
        version = self._next_version(queries)
        if (request.version or 0) > 0 and request.version != version:
            raise invalid_schema(f"Version is not one more than previous version {version - 1}", source.schema_type)
        level, findings = queries.findings(self.work, subject, source, request.metadata)
        if findings:
            raise incompatible(subject, shown(findings, level))
        context = queries.state.context(context_of(subject))
        schema_id = context.by_digest.get(digest(text, request.references or (), request.metadata, request.rule_set))
        return self._write(source.schema_type, text, context.max_id + 1 if schema_id is None else schema_id, version)

    def _existing(self, queries: Queries, schema_type: str, text: str) -> SchemaValue | None:
        try:
            return queries.look_up(self.subject, schema_type, text, self.request, deleted=False)
        except RegistryError:
            return None

    def _next_version(self, queries: Queries) -> int:
        """A soft-deleted version keeps its number."""
        return max(queries.state.subjects.get(self.subject, {0: None})) + 1

    def _imported(self, queries: Queries, schema_type: str, text: str, mode: str) -> DecisionStep:
        if mode != "IMPORT":
            where = f"Subject {self.subject} in context {context_of(self.subject)}"
            raise not_permitted(f"{where} is not in import mode")
        schema_id = self.request.id or 0
        for value in queries.state.by_id(context_of(self.subject), schema_id).values():
            if value.schema != text or value.schema_type != schema_type:
                raise not_permitted(
                    f"Overwrite new schema with id {schema_id} in context {context_of(self.subject)} is not permitted."
                )
        existing = self._existing(queries, schema_type, text)
        if existing is not None and existing.id != schema_id:
            raise id_does_not_match()
        return self._write(schema_type, text, schema_id, self.request.version or self._next_version(queries))

    def _write(self, schema_type: str, text: str, schema_id: int, version: int) -> DecisionStep:
        request = self.request
        if max(schema_id, version) > MAX_INT:
            what = "id" if schema_id > MAX_INT else "version"
            raise not_permitted(f"The next {what} would be larger than 2^31-1: none is left for {self.subject}")
        value = SchemaValue(
            self.subject, version, schema_id, False, schema_type, tuple(request.references or ()),
            request.metadata, request.rule_set, text,
        )  # fmt: skip
        self._written = value
        return DecisionStep(schema_record(value))


class DeleteSubject:
    def __init__(self, subject: str, *, permanent: bool) -> None:
        self.subject, self.permanent = subject, permanent
        self._gone: list[int] = []

    def __call__(self, queries: Queries) -> DecisionStep:
        subject = self.subject
        values = queries.state.versions(subject, deleted=True)
        if not values and not self._gone:
            raise subject_not_found(subject)
        _check_writable(queries.mode(subject, inherited=True), subject)
        alive = [value for value in values if not value.deleted]
        if self.permanent:
            return self._permanently(queries, values, alive)
        if self._gone:
            return DecisionStep(answer=self._gone)
        if not alive:
            raise subject_soft_deleted(subject)
        for value in alive:
            _check_unreferenced(queries, value, deleted=False)
        self._gone = [value.version for value in alive]
        return DecisionStep(delete_subject_record(subject, alive[-1].version))

    def _permanently(self, queries: Queries, values: list[SchemaValue], alive: list[SchemaValue]) -> DecisionStep:
        if alive:
            raise subject_not_soft_deleted(self.subject)
        if not values:
            return self._forget_settings(queries)
        for value in values:
            _check_unreferenced(queries, value, deleted=True)
        keep = _keep_ids(queries, values[0])
        if keep is not None:
            return keep
        self._gone = [*self._gone, values[0].version]
        return DecisionStep(schema_tombstone(self.subject, values[0].version))

    def _forget_settings(self, queries: Queries) -> DecisionStep:
        if self.subject in queries.state.configs:
            return DecisionStep(config_record(self.subject, None))
        if self.subject in queries.state.modes:
            return DecisionStep(mode_record(self.subject, None))
        if self._gone[-1] != 0:
            # Once: the record that soft deleted the versions is no longer needed.
            self._gone = [*self._gone, 0]
            return DecisionStep(delete_subject_tombstone(self.subject))
        return DecisionStep(answer=self._gone[:-1])


class DeleteVersion:
    def __init__(self, subject: str, version: str, *, permanent: bool) -> None:
        self.subject, self.version, self.permanent = subject, version, permanent
        self._gone: int | None = None

    def __call__(self, queries: Queries) -> DecisionStep:
        if self._gone is not None:
            return DecisionStep(answer=self._gone)
        value = self._find(queries)
        _check_writable(queries.mode(self.subject, inherited=True), self.subject)
        _check_unreferenced(queries, value, deleted=self.permanent)
        if not self.permanent:
            if value.deleted:
                raise version_soft_deleted(self.subject, value.version)
            self._gone = value.version
            return DecisionStep(schema_record(value.as_deleted()))
        if not value.deleted:
            raise version_not_soft_deleted(self.subject, value.version)
        keep = _keep_ids(queries, value)
        if keep is not None:
            return keep
        self._gone = value.version
        return DecisionStep(schema_tombstone(self.subject, value.version))

    def _find(self, queries: Queries) -> SchemaValue:
        number = version_number(self.version)
        values = queries.state.versions(self.subject, deleted=True)
        if not values:
            raise subject_not_found(self.subject)
        if number is None:
            alive = [value for value in values if not value.deleted]
            if not alive:
                raise subject_not_found(self.subject)
            return alive[-1]
        schema_version = queries.state.subjects[self.subject].get(number)
        if schema_version is None:
            raise version_not_found(number)
        return schema_version


class SetConfig:
    def __init__(self, subject: str, config: JsonObject | None) -> None:
        """None removes it."""
        self.subject, self.config = subject, config
        self._old: JsonObject | None = None
        self._done = False

    def __call__(self, queries: Queries) -> DecisionStep:
        if self._done:
            return DecisionStep(answer=self.config if self.config is not None else self._old)
        _check_settable(queries, self.subject)
        self._old = queries.config(self.subject, inherited=False)
        self._done = True
        return DecisionStep(config_record(self.subject or None, self.config))


class MergeConfig(SetConfig):
    """PUT: what the body names is set, the rest stays."""

    def __call__(self, queries: Queries) -> DecisionStep:
        if not self._done and self.config is not None:
            _check_settable(queries, self.subject)
            kept = {k: v for k, v in queries.state.configs.get(self.subject, {}).items() if k != "subject"}
            self._done = True
            return DecisionStep(config_record(self.subject or None, {**kept, **self.config}))
        return DecisionStep(answer=self.config)


class SetMode:
    def __init__(self, subject: str, mode: str | None, *, force: bool) -> None:
        self.subject, self.mode, self.force = subject, mode, force
        self._done = False
        self._old = ""

    def __call__(self, queries: Queries) -> DecisionStep:
        if self._done:
            return DecisionStep(answer=self.mode or self._old)
        if self.mode is not None and self.mode not in MODES:
            raise invalid_mode()
        if self.mode is None:
            self._old = queries.mode(self.subject, inherited=False)
        if self.mode == "IMPORT" and not self.force:
            held = queries.versions_exist(self.subject)
            if held and queries.mode(self.subject, inherited=True) != "IMPORT":
                raise not_permitted("Cannot import since found existing subjects")
        self._done = True
        return DecisionStep(mode_record(self.subject or None, self.mode))


def _check_writable(mode: str, subject: str) -> None:
    if mode in _READ_ONLY:
        raise not_permitted(f"Subject {subject} in context {context_of(subject)} is in read-only mode")


def _check_settable(queries: Queries, subject: str) -> None:
    if subject != GLOBAL:
        _check_writable(queries.mode(subject, inherited=True), subject)


def _check_unreferenced(queries: Queries, value: SchemaValue, *, deleted: bool) -> None:
    if queries.referenced_by(value.subject, value.version, deleted=deleted):
        raise reference_exists(value.subject, value.version)


def _keep_ids(queries: Queries, value: SchemaValue) -> DecisionStep | None:
    """Before the last trace of the largest id goes, it is written down: an id is never given twice."""
    context = queries.state.context(context_of(value.subject))
    holders = context.by_id.get(value.id, {})
    if value.id == context.max_id and len(holders) == 1 and not queries.state.kept(context_of(value.subject)):
        return DecisionStep(ids_record(queries.state.max_ids()))
    return None
