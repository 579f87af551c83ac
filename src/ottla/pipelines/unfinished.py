"""A batch that Spark planned and did not note as done: the next run repeats it, and its markers must be there still."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from ottla.connect.clients import librdkafka_settings
from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint, LocalFiles, scheme_of

UNFINISHED = "ottla.unfinished"
"""An option that a pipeline gives to its writers: BATCH:MS of the unfinished batch, or nothing if there is none."""

_FILE = re.compile(r"^file:(//(?=/))?")
_LEAST_AGE_MS = 3_600_000
"""Younger batches do not cost a question to a broker: nobody lets offsets expire within an hour."""
_RETENTION = "offsets.retention.minutes"
_RETENTION_MINUTES = 10_080
"""Kafka's default, for brokers that do not describe their settings."""
_TIMEOUT_S = 30.0


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
    batch = checkpoint.last_batch(query)
    if batch is None or str(batch) in checkpoint.files.names(f"{checkpoint.folder}/{query}/commits"):
        return ""
    planned_ms = checkpoint.planned_ms(query, batch)
    return "" if planned_ms is None else f"{batch}:{planned_ms}"


def local_unfinished_batch(location: str) -> str:
    """That of a query's checkpoint on this machine. Writers have no JVM, which could open other file systems."""
    if not location or scheme_of(location) != "file":
        return ""
    folder, _, query = _FILE.sub("", location).rpartition("/")
    try:
        return unfinished_batch(Checkpoint(LocalFiles(), folder), query)
    except (UserError, OSError):
        return ""  # files that cannot be read are reported by Spark


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
