"""A batch that Spark planned and did not note as done: the next run repeats it, and its markers must be there still."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from ottla.connect.clients import librdkafka_settings

_LEAST_AGE_MS = 3_600_000
"""Younger batches do not cost a question to a broker: nobody lets offsets expire within an hour."""
_RETENTION = "offsets.retention.minutes"
_RETENTION_MINUTES = 10_080
"""Kafka's default, for brokers that do not describe their settings."""
_TIMEOUT_S = 30.0


def expired_batch(client: Mapping[str, str], checkpoint: str, now_ms: float | None = None) -> int | None:
    """The unfinished batch of a checkpoint if the brokers may have removed markers that were written when it began.

    Checkpoints on a file system of this machine are read; others are taken as young.
    """
    folder = _local(checkpoint)
    planned = None if folder is None else unfinished_batch(folder)
    if planned is None:
        return None
    batch, planned_ms = planned
    age_ms = (time.time() * 1000 if now_ms is None else now_ms) - planned_ms
    if age_ms < _LEAST_AGE_MS or age_ms < retention_ms(client):
        return None
    return batch


def unfinished_batch(folder: str) -> tuple[int, int] | None:
    """Its number, and when Spark planned it."""
    try:
        batch = max((int(name) for name in os.listdir(os.path.join(folder, "offsets")) if name.isdigit()), default=None)
        if batch is None or os.path.exists(os.path.join(folder, "commits", str(batch))):
            return None
        with open(os.path.join(folder, "offsets", str(batch)), encoding="utf-8") as file:
            return batch, int(json.loads(file.read().splitlines()[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None  # no checkpoint yet, or half a file, which Spark reports


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


def _local(checkpoint: str) -> str | None:
    parts = urlsplit(checkpoint)
    if parts.scheme == "file":
        return unquote(parts.path)
    return checkpoint if not parts.scheme else None
