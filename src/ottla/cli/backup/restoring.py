"""`ottla backup restore`: topics, records at their offsets, settings, group offsets and ACLs, in this order."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import BackupError, Manifest, SavedTopic
from ottla.cli.backup.pieces import pieces, segment_content
from ottla.cli.backup.writing import PartitionWriter
from ottla.client.acls import Entry, Resource, create_acls
from ottla.client.configs import DELETE, SET, Change, ConfigResourceType, alter_configs
from ottla.client.groups import commit_offsets
from ottla.client.topics import create_topic
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.cli.backup.store import BackupStore
    from ottla.client.cluster import Cluster

MAX_HOLES = 10_000
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
"""Nothing expires, and no record is refused, before the topic gets its own settings."""


def problems_of(store: BackupStore, manifest: Manifest) -> list[str]:
    """What is wrong with a backup, in sentences."""
    problems = [] if manifest.complete else [f"{manifest.name} is incomplete: `ottla backup create` continues it"]
    for segment in manifest.segments():
        try:
            segment_content(store, segment)
        except (BackupError, KafkaError) as problem:
            problems.append(str(problem))
    return problems


def restore_backup(
    cluster: Cluster,
    store: BackupStore,
    manifest: Manifest,
    max_holes: int = MAX_HOLES,
    progress: Callable[[str], None] = lambda _text: None,
) -> list[str]:
    """What was not restored, and why. Raises BackupError before any change if the backup, the holes of a partition or a
    topic prevent the restore.
    """
    if problems := problems_of(store, manifest):
        raise BackupError("\n       ".join(problems))
    metadata = cluster.describe("metadata", None)
    present = {topic.name for topic in metadata.topics} & {topic.name for topic in manifest.topics}
    if present:
        raise BackupError(
            f"the cluster has {', '.join(sorted(map(str, present)))} already: delete these topics, or use an empty cluster "
            "(start `ottla up` with --no-registry, and the registry after the restore)"
        )
    _refuse_holes(store, manifest, max_holes)
    transactional_id = f"ottla-restore-{uuid.uuid4()}"
    for topic in manifest.topics:
        create_topic(
            cluster,
            topic.name,
            partitions=len(topic.partitions),
            replication_factor=min(topic.replicas, len(metadata.brokers)),
            configs=WHILE_RESTORING,
        )
        for partition in topic.partitions:
            progress(f"{topic.name}-{partition.index}")
            writer = PartitionWriter(cluster, topic.name, partition.index, transactional_id)
            writer.write(partition.start, partition.end, pieces(store, partition))
        alter_configs(cluster, ConfigResourceType.TOPIC, topic.name, _own_settings(topic))
    _restore_groups(cluster, manifest)
    try:
        _restore_acls(cluster, manifest)
    except KafkaError as refusal:
        if refusal.code != ErrorCode.SECURITY_DISABLED:
            raise
        return [f"{len(manifest.acls)} ACLs: the cluster has no authorizer"]
    return []


def _own_settings(topic: SavedTopic) -> list[Change]:
    changes: list[Change] = [(name, DELETE, None) for name in WHILE_RESTORING if name not in topic.configs]
    return changes + [(name, SET, value) for name, value in topic.configs.items()]


def _refuse_holes(store: BackupStore, manifest: Manifest, max_holes: int) -> None:
    for topic in manifest.topics:
        for partition in topic.partitions:
            records = sum(piece.record_count for piece in pieces(store, partition))
            holes = partition.end - partition.start - records
            if holes > max_holes:
                raise BackupError(
                    f"{topic.name}-{partition.index} has {holes:,} offsets without a record (compaction, transactions), and "
                    f"--max-holes is {max_holes:,}: each needs four requests, so a higher --max-holes takes longer"
                )


def _restore_groups(cluster: Cluster, manifest: Manifest) -> None:
    ends = {(topic.name, partition.index): partition.end for topic in manifest.topics for partition in topic.partitions}
    for group, rows in manifest.groups.items():
        offsets = {
            (topic, index): min(offset, ends[topic, index]) for topic, index, offset in rows if (topic, index) in ends
        }
        commit_offsets(cluster, group, offsets)


def _restore_acls(cluster: Cluster, manifest: Manifest) -> None:
    entries: dict[Resource, list[Entry]] = defaultdict(list)
    for kind, name, pattern, principal, host, operation, permission in manifest.acls:
        resource = Resource(ResourceType(kind), name, PatternType(pattern))
        entries[resource].append(Entry(principal, host, Operation(operation), Permission(permission)))
    for resource, rows in entries.items():
        create_acls(cluster, resource, rows)
