"""Positions of a stream as Spark's checkpoints store them: offsets, and beside them what the offsets are bound to.

Offsets keep the shape of Spark's own source, {"topic": {"0": 23}}. The key `@ottla`, which no topic can have, holds the
topic ids, leader epochs and first offsets of a batch, with the version of this shape. Checkpoints of earlier versions
have no such key: their topics take the ids of the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.pipelines.options import Bounds

RESERVED_KEY = "@ottla"
_VERSION = 1

Split = tuple[int | None, int | None]
"""minPartitions and maxRecordsPerPartition: how the batch was cut into tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    offsets: Bounds
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Bounds = field(default_factory=dict)
    begins: Bounds = field(default_factory=dict)
    """Where the batch that ends here begins, for partitions that do not begin where the batch before ended."""
    split: Split | None = None
    """A repeated batch is cut as at its first run; None uses the options."""

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, Any]] = {}
        for topic, topic_id in sorted(self.topic_ids.items()):
            topics.setdefault(topic, {})["id"] = topic_id
        for name, bounds in (("epochs", self.leader_epochs), ("begins", self.begins)):
            for topic, offsets in _by_topic(bounds).items():
                topics.setdefault(topic, {})[name] = offsets
        identity: dict[str, Any] = {"version": _VERSION, "topics": topics}
        if self.split is not None:
            identity["split"] = list(self.split)
        return {**_by_topic(self.offsets), RESERVED_KEY: identity}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Positions:
        identity = stored.get(RESERVED_KEY, {})
        if identity.get("version", _VERSION) > _VERSION:
            raise UserError(
                f"the checkpoint has positions of version {identity['version']}, this Ottla reads up to {_VERSION}: "
                "upgrade Ottla, or start with a new checkpoint"
            )
        topics: Mapping[str, Mapping[str, Any]] = identity.get("topics", {})
        split = identity.get("split")
        return cls(
            offsets=_bounds({topic: offsets for topic, offsets in stored.items() if topic != RESERVED_KEY}),
            topic_ids={topic: facts["id"] for topic, facts in topics.items() if "id" in facts},
            leader_epochs=_bounds({topic: facts.get("epochs", {}) for topic, facts in topics.items()}),
            begins=_bounds({topic: facts.get("begins", {}) for topic, facts in topics.items()}),
            split=None if split is None else (split[0], split[1]),
        )


def _by_topic(bounds: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(bounds.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def _bounds(by_topic: Mapping[str, Mapping[str, int]]) -> Bounds:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in by_topic.items()
        for partition, offset in offsets.items()
    }


def merged_offsets(sources: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the inputs stand after a batch, by topic, from Spark's own write-ahead log."""
    merged: dict[str, Any] = {}
    for offsets in sources:
        for topic, parts in offsets.items():
            if topic != RESERVED_KEY:
                merged.setdefault(topic, {}).update(parts)
    return merged
