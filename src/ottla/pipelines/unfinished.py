"""A batch that Spark planned and did not note as done: the next run repeats it, and its markers must be there still."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.clients import librdkafka_settings
from ottla.connect.locations import locate
from ottla.env.logging import get_logger
from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint, CheckpointReader, LocalFiles, last_batch, planned_ms, scheme_of

UNFINISHED = "ottla.unfinished"
"""An option that a pipeline gives to its writers: BATCH:MS of the unfinished batch, or nothing if there is none."""

_FILE = re.compile(r"^file:(//(?=/))?")
_LEAST_AGE_MS = 3_600_000
"""Younger batches do not cost a question to a broker: nobody lets offsets expire within an hour."""
_RETENTION = "offsets.retention.minutes"
_RETENTION_MINUTES = 10_080
"""Kafka's default, for brokers that do not describe their settings."""
_TIMEOUT_S = 30.0
_looked: dict[str, tuple[float, str]] = {}
"""Location of a remote checkpoint -> until when the answer counts, and the answer. A look costs three requests. A batch that
was planned after the look is younger than _LEAST_AGE_MS for as long."""
_log = get_logger(__name__)


def expired_batch(client: Mapping[str, str], unfinished: str, now_ms: float | None = None) -> int | None:
    """The unfinished batch (BATCH:MS) if the brokers may have removed markers that were written when it began."""
    if not unfinished:
        return None
    batch, planned_ms = map(int, unfinished.split(":"))
    age_ms = (time.time() * 1000 if now_ms is None else now_ms) - planned_ms
    if age_ms < _LEAST_AGE_MS or age_ms < retention_ms(client):
        return None
    return batch


def unfinished_batch(checkpoint: Checkpoint, query: str) -> str:
    """BATCH:MS of the batch that the query repeats at its next start, and when Spark planned it; empty without one."""
    return _unfinished(checkpoint.files, f"{checkpoint.folder}/{query}")


def _unfinished(files: CheckpointReader, query: str) -> str:
    batch = last_batch(files, query)
    if batch is None or str(batch) in files.names(f"{query}/commits"):
        return ""
    planned = planned_ms(files, query, batch)
    return "" if planned is None else f"{batch}:{planned}"


def stored_unfinished_batch(location: str, clock: Callable[[], float] = time.monotonic) -> str:
    """The same for the location of a query's checkpoint, in a writer. Writers have no JVM: pyarrow opens other file systems,
    with the credentials of the environment."""
    if not location:
        return ""
    if scheme_of(location) == "file":
        try:
            return _unfinished(LocalFiles(), _FILE.sub("", location))
        except (UserError, OSError):
            return ""  # files that cannot be read are reported by Spark
    until, batch = _looked.get(location, (0.0, ""))
    if clock() >= until:
        try:
            store, place = locate(location).file_system()
            batch = _unfinished(_StoreFiles(store), place)
        except (UserError, OSError, ValueError) as problem:
            batch = ""
            _log.warning("checkpoint.not_read", location=location, reason=str(problem).splitlines()[0])
        _looked[location] = clock() + _LEAST_AGE_MS / 1000, batch
    return batch


class _StoreFiles:
    def __init__(self, store: Any) -> None:
        self._store = store

    def read(self, path: str) -> str | None:
        try:
            with self._store.open_input_stream(path) as file:
                return str(file.read(), "utf-8")
        except FileNotFoundError:
            return None

    def names(self, path: str) -> list[str]:
        from pyarrow.fs import FileSelector

        entries = self._store.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(entry.base_name for entry in entries)


def retention_ms(client: Mapping[str, str]) -> int:
    """How long the brokers keep an offset of a group without members."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    admin = AdminClient(librdkafka_settings(client))
    try:
        broker = next(iter(admin.list_topics(timeout=_TIMEOUT_S).brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        entry = admin.describe_configs([resource])[resource].result(_TIMEOUT_S).get(_RETENTION)
    except KafkaException:
        entry = None
    return int(entry.value if entry is not None and entry.value else _RETENTION_MINUTES) * 60_000
