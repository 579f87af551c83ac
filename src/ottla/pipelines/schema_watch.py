"""New versions of the inputs' schemas while a pipeline runs: one warning for each, in the log and in the status.

A run reads values as the schema of its start. A thread of its own asks the registries for the versions of each subject: a
registry that does not answer must not delay the supervision of the queries.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ottla.client.errors import RegistryRefused, RegistryUnreachable
from ottla.client.schema_registry import latest_schema, schema_texts, subject_version, subject_versions
from ottla.model.user_error import UserError
from ottla.pipelines.avro_reading import AvroDecoder
from ottla.pipelines.avro_types import max_depth
from ottla.pipelines.ports import Format, Topic

POLL_S = 30.0


@dataclass(slots=True)
class _Subject:
    name: str
    form: Format
    registry: str
    reads: int | None = None
    """The schema id of the run: Avro's reader schema, if the port gives none itself."""
    newest: int = 0
    """The last version that was looked at."""

    def begin(self) -> None:
        self.newest = max(subject_versions(self.registry, self.name), default=0)
        if self.form.kind == "avro" and self.form.schema is None:
            self.reads = latest_schema(self.registry, self.name)[0]

    def look(self) -> list[str]:
        """A sentence for each new version that differs from what the run reads."""
        if not self.newest:
            self.begin()
            return []
        sentences = []
        for version in sorted(subject_versions(self.registry, self.name)):
            if version > self.newest:
                sentences.append(self._difference(version, subject_version(self.registry, self.name, version)))
                self.newest = version
        return [sentence for sentence in sentences if sentence]

    def _difference(self, version: int, schema_id: int) -> str:
        problem, added = self._compared(schema_id)
        if problem:
            return (
                f"version {version} of {self.name} cannot be read by this run: {problem}. Its records go to the dead letters, or "
                "stop the step: create new outputs with `ottla pipeline backfill` to read them"
            )
        if not added:
            return ""
        how = "restart the pipeline" if self.form.schema is None else "add them to the schema of the input and restart"
        return f"version {version} of {self.name} has fields that this run does not read: {', '.join(added)}; {how} to read them"

    def _compared(self, schema_id: int) -> tuple[str, list[str]]:
        if self.form.kind == "protobuf":
            from ottla.pipelines.protobuf_schemas import message_indexes_of, written_message

            name = self.form.schema or ""
            indexes = message_indexes_of(self.registry, schema_id, name)
            message = written_message(self.registry, schema_id, indexes, name)
            return message.problem, list(message.added)
        reader = (self.form.schema,) if self.form.schema is not None else schema_texts(self.registry, self.reads or 0)
        decoder = AvroDecoder(schema_texts(self.registry, schema_id), reader, max_depth(self.form.options))
        return decoder.problem, decoder.added


@dataclass(slots=True)
class SchemaWatch:
    """Entered before the queries of a run are declared; inputs without a registry cost nothing."""

    inputs: Iterable[Topic]
    warnings: list[str] = field(default_factory=list)
    _subjects: list[_Subject] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        subjects = {
            (port.value.registry, port.value.subject or f"{port.name}-value", port.value.kind): port.value
            for port in self.inputs
            if port.value.registry is not None
        }
        self._subjects = [
            _Subject(name=name, form=form, registry=registry or "") for (registry, name, _), form in subjects.items()
        ]
        self.look()
        if self._subjects:
            self._thread = threading.Thread(target=self._watch, name="ottla-schemas", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def look(self) -> None:
        """Asks for each subject once. A registry that does not answer is asked again at the next look."""
        for subject in self._subjects:
            try:
                sentences = subject.look()
            except (RegistryUnreachable, RegistryRefused, UserError, ValueError):
                continue
            for sentence in sentences:
                self.warnings.append(sentence)
                sys.stderr.write(f"ottla: WARNING: {sentence}\n")

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            self.look()
