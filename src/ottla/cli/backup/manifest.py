"""The format of a backup: a manifest in JSON, and files of batches that several backups share.

    backups/NAME.json                       a manifest; `complete` is false until the backup has everything
    data/TOPIC_ID/PARTITION/FIRST-END-CHECKSUM.log   batches as brokers store them

A manifest is written again after each partition. A reader of the format refuses a higher number.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ottla.model.user_error import UserError

FORMAT = 1
_FILE = re.compile(r"data/[A-Za-z0-9_-]{1,64}/[0-9]{1,10}/[0-9]{1,19}-[0-9]{1,19}-[0-9a-f]{1,64}\.log")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MAX_OFFSET = 2**63 - 1


class BackupError(UserError):
    """A backup cannot be made, read or restored."""


@dataclass(slots=True, kw_only=True)
class SavedSegment:
    file: str
    first: int
    end: int
    size: int
    sha256: str
    epoch: int
    """The leader epoch of the last batch: a log that was cut since ends before `end` in this epoch."""
    aborted: list[list[int]] = field(default_factory=list)
    """Producer id and first offset of the aborted transactions in the file."""


@dataclass(slots=True, kw_only=True)
class SavedPartition:
    index: int
    start: int
    end: int
    segments: list[SavedSegment] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SavedTopic:
    name: str
    topic_id: str
    replicas: int
    configs: dict[str, str]
    compacted: bool = False
    """By its own setting or the brokers' default."""
    partitions: list[SavedPartition] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Manifest:
    name: str
    cluster_id: str
    complete: bool = False
    topics: list[SavedTopic] = field(default_factory=list)
    groups: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Topic, partition and offset of each commit."""
    acls: list[list[Any]] = field(default_factory=list)
    users: list[list[Any]] = field(default_factory=list)
    """Name and mechanism: the protocol gives no secrets."""

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments())

    def segments(self) -> list[SavedSegment]:
        return [segment for topic in self.topics for partition in topic.partitions for segment in partition.segments]

    def compacted(self, topic_id: str) -> bool:
        return any(topic.compacted for topic in self.topics if topic.topic_id == topic_id)

    def partition(self, topic_id: str, index: int) -> SavedPartition | None:
        for topic in self.topics:
            if topic.topic_id == topic_id:
                return next((partition for partition in topic.partitions if partition.index == index), None)
        return None


def manifest_of(content: bytes, where: str) -> Manifest:
    """Raises BackupError for a file that is not a manifest of this format."""
    try:
        tree = json.loads(content)
        if tree.pop("format") > FORMAT:
            raise BackupError(f"{where} has a newer format: upgrade Ottla")
        topics = [
            SavedTopic(**{**topic, "partitions": [_partition(partition) for partition in topic["partitions"]]})
            for topic in tree.pop("topics")
        ]
        for topic in topics:
            _check(topic)
        if not _NAME.fullmatch(tree["name"]):
            raise ValueError(f"{tree['name']!r} is not the name of a backup")
        return Manifest(topics=topics, **tree)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BackupError(f"{where} is not the manifest of a backup: {problem}") from problem


def _check(topic: SavedTopic) -> None:
    """Raises ValueError: a manifest may be damaged, or from a stranger."""
    if [partition.index for partition in topic.partitions] != list(range(len(topic.partitions))):
        raise ValueError(f"the partitions of {topic.name} are not 0 to {len(topic.partitions) - 1}")
    for partition in topic.partitions:
        if not 0 <= partition.start <= partition.end <= _MAX_OFFSET:
            raise ValueError(f"{topic.name}-{partition.index} has the offsets {partition.start} to {partition.end}")
        for segment in partition.segments:
            if not _FILE.fullmatch(segment.file):
                raise ValueError(f"{segment.file} does not name a file of a backup")
            if any(len(row) != len(("producer", "first offset")) for row in segment.aborted):
                raise ValueError(f"{segment.file} has aborted transactions without a producer and an offset")


def _partition(tree: dict[str, Any]) -> SavedPartition:
    return SavedPartition(**{**tree, "segments": [SavedSegment(**segment) for segment in tree["segments"]]})
