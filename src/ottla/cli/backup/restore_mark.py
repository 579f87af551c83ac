"""The mark of a restore: a topic that exists from before the first restored topic until everything is restored.

A restore that is killed leaves the mark behind, so a cluster with half of a backup does not look whole. `topic list` and
`cluster status` show the mark, and `backup create` and `backup restore` refuse the cluster. The mark is a single topic whose
name contains the name of the backup: a kill leaves no part of a mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import BackupError, Manifest, SavedTopic
from ottla.client.configs import DELETE, SET, Change, ConfigResourceType, describe_configs
from ottla.client.offsets import FoundOffset, list_offsets
from ottla.client.topics import create_topic, delete_topic, list_topics
from ottla.model.config_source import ConfigSource
from ottla.protocol.offset_timestamps import LATEST

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

PREFIX = "ottla-restore-under-way."
_MARK_REPLICAS = 3
_LONGEST = str(2**63 - 1)
WHILE_RESTORING = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(2**31 - 1),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": _LONGEST,
    "message.timestamp.before.max.ms": _LONGEST,
}
"""Nothing expires, and no record is refused, before the topic gets its own settings in one change. A topic with all of these
settings does not have all of its records yet."""


def restores_under_way(topic_names: Iterable[str]) -> list[str]:
    """The names of the backups whose restore has not ended."""
    return sorted(name.removeprefix(PREFIX) for name in topic_names if name.startswith(PREFIX))


def refuse_half_restored(topic_names: Iterable[str]) -> None:
    """Raises BackupError if the cluster has the mark of a restore."""
    for backup in restores_under_way(topic_names):
        raise BackupError(
            f"a restore of {backup} into this cluster has not ended. If no `ottla backup restore` runs any more, "
            f"`ottla backup restore WHERE {backup} --continue` restores what is missing"
        )


def set_mark(cluster: Cluster, backup: str, brokers: int) -> None:
    create_topic(cluster, PREFIX + backup, partitions=1, replication_factor=min(_MARK_REPLICAS, brokers))


def remove_mark(cluster: Cluster, backup: str) -> None:
    delete_topic(cluster, PREFIX + backup)


def own_settings(topic: SavedTopic) -> list[Change]:
    """The one change that ends the restore of a topic."""
    changes: list[Change] = [(name, DELETE, None) for name in WHILE_RESTORING if name not in topic.configs]
    return changes + [(name, SET, value) for name, value in topic.configs.items()]


def refuse_missing_records(cluster: Cluster, topic: SavedTopic) -> None:
    """Raises BackupError if a partition ends before the backup does."""
    places = [(topic.name, partition.index) for partition in topic.partitions]
    answers = list_offsets(cluster, dict.fromkeys(places, LATEST))
    for partition in topic.partitions:
        answer = answers[topic.name, partition.index]
        end = answer.offset if isinstance(answer, FoundOffset) else -1
        if end < partition.end:
            raise BackupError(
                f"{topic.name}-{partition.index} ends at offset {end}, and at {partition.end} in the backup: a different "
                "program made the topic, or deleted it meanwhile. Delete the topic, and continue the restore"
            )


def sort_topics(cluster: Cluster, manifest: Manifest) -> tuple[set[str], list[str]]:
    """The topics that an interrupted restore has finished, and those that it has begun. Raises BackupError for a topic that
    is neither.
    """
    present = {topic.name or "" for topic in list_topics(cluster)}
    if manifest.name not in restores_under_way(present):
        raise BackupError(f"the cluster has no mark of a restore of {manifest.name}: omit --continue")
    refuse_half_restored(present - {PREFIX + manifest.name})
    finished, begun = set(), []
    for topic in manifest.topics:
        if topic.name not in present:
            continue
        rows = describe_configs(cluster, ConfigResourceType.TOPIC, [topic.name])[topic.name]
        settings = {row.name: row.value for row in rows if row.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
        if WHILE_RESTORING.items() <= settings.items():
            begun.append(topic.name)
        else:
            refuse_missing_records(cluster, topic)
            finished.add(topic.name)
    return finished, begun
