"""Topics without a broker: segment files in a folder, which `format("ottla")` reads with its option `path`.

Each topic has one partition. Records get rising offsets, and times that rise by a millisecond across all topics, so the
order of the calls is the order of the records.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from ottla.model.user_error import UserError
from ottla.pipelines.ports import Format
from ottla.protocol.records_build import SimpleRecord, build_batch

FIRST_MS = 1_767_225_600_000
"""2026-01-01, 00:00 UTC."""
_SEGMENT = f"{0:020}.log"


def timestamp_ms(at: datetime | str) -> int:
    """A time without a zone is UTC, as in the pipelines' sessions."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class StoredTopics:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._ends: dict[str, int] = {}
        self._clock = itertools.count(FIRST_MS)

    def create(self, topic: str) -> None:
        if topic in self._ends:
            return
        os.makedirs(os.path.join(self.folder, f"{topic}-0"))
        self._append(topic, b"")
        self._ends[topic] = 0

    def send(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None,
        at: datetime | str | None,
        headers: Mapping[str, bytes],
    ) -> None:
        records = [
            SimpleRecord(next(self._clock) if at is None else timestamp_ms(at), key, value, tuple(headers.items()))
            for value in values
        ]
        if records:
            self._append(topic, bytes(build_batch(records, base_offset=self._ends[topic])))
            self._ends[topic] += len(records)

    def _append(self, topic: str, data: bytes) -> None:
        with open(os.path.join(self.folder, f"{topic}-0", _SEGMENT), "ab") as segment:
            segment.write(data)


def value_bytes(value: Any, form: Format) -> bytes | None:
    """The value of a record in the format of its topic. Bytes and None are written as they are."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if form.kind == "json":
        return json.dumps(value, default=_as_text).encode()
    if form.kind == "avro" and form.schema is not None and form.registry is None:
        return _avro(value, form.schema)
    raise UserError(
        f"a test gives the records of a topic with {form.kind} values as bytes or text"
        + (": the registry needs a broker, see ottla.testing.Broker(registry=True)" if form.registry else "")
    )


def _as_text(value: Any) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no JSON")


def _avro(value: Any, schema: str) -> bytes:
    import io

    import fastavro

    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(schema)), value)
    return data.getvalue()
