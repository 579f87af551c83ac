"""`ottla backup restore`: topics, records at their offsets, settings, group offsets and ACLs, in this order.

A topic (`restore_mark.py`) marks the cluster from before the first change until after the last. A restore that was killed at
any line is therefore named, and can be continued.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import BackupError, Manifest, SavedTopic
from ottla.cli.backup.pieces import pieces, segment_content
from ottla.cli.backup.restore_mark import (
    WHILE_RESTORING,
    own_settings,
    refuse_half_restored,
    refuse_missing_records,
    remove_mark,
    set_mark,
    sort_topics,
)
from ottla.cli.backup.writing import PartitionWriter
from ottla.client.acls import Entry, Resource, create_acls
from ottla.client.configs import ConfigResourceType, alter_configs
from ottla.client.groups import commit_offsets, committed_offsets
from ottla.client.topics import create_topic, delete_topic
from ottla.model.acls import Operation, PatternType, Permission, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.metadata_request import MetadataRequest
from ottla.protocol.generated.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from ottla.cli.backup.store import BackupStore
    from ottla.client.cluster import Cluster

_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreLimits:
    """What a restore may write beside the records. A manifest may be damaged, or from a stranger."""

    max_holes: int = 10_000
    """Offsets without a record, in a partition."""
    max_filler_records: int = 10_000_000_000
    """Offsets before the first record, in all partitions: 100,000 of them are one request."""


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
    limits: RestoreLimits,
    progress: Callable[[str], None] = lambda _text: None,
    *,
    resume: bool = False,
) -> list[str]:
    """What was not restored, and why. Raises BackupError before any change if the backup, its size, a topic or an
    interrupted restore prevents the restore. `resume` continues the interrupted restore of this backup.
    """
    if problems := problems_of(store, manifest):
        raise BackupError("\n       ".join(problems))
    _refuse_holes(store, manifest, limits.max_holes)
    _refuse_fillers(manifest, limits.max_filler_records)
    metadata = cluster.describe("metadata", None)
    finished: set[str] = set()
    if resume:
        finished, begun = sort_topics(cluster, manifest)
        _delete_topics(cluster, begun, [broker.node_id for broker in metadata.brokers])
    else:
        present = {topic.name or "" for topic in metadata.topics}
        refuse_half_restored(present)
        _refuse_topics(present & {topic.name for topic in manifest.topics})
        set_mark(cluster, manifest.name, len(metadata.brokers))
    transactional_id = f"ottla-restore-{uuid.uuid4()}"
    for topic in manifest.topics:
        if topic.name not in finished:
            _restore_topic(cluster, store, topic, len(metadata.brokers), transactional_id, progress)
    _restore_groups(cluster, manifest, resume=resume)
    left_out = _restore_acls(cluster, manifest)
    remove_mark(cluster, manifest.name)
    return left_out


def _refuse_topics(present: set[str]) -> None:
    if present:
        raise BackupError(
            f"the cluster has {', '.join(sorted(present))} already: delete these topics, or use an empty cluster "
            "(start `ottla up` with --no-registry, and the registry after the restore)"
        )


def _delete_topics(cluster: Cluster, names: list[str], brokers: list[int]) -> None:
    """Until no broker has them: a new topic of the same name must not get its records on a broker that has the old topic."""
    for name in names:
        delete_topic(cluster, name)
    deadline = time.monotonic() + cluster.settings.api_timeout_ms / 1000
    for broker in brokers:
        while set(names) & _listed(cluster, broker):
            if time.monotonic() > deadline:
                raise BackupError(f"broker {broker} still has {', '.join(names)} after their deletion")
            time.sleep(_PAUSE_S)


def _listed(cluster: Cluster, broker: int) -> set[str]:
    answer = cluster.node_call("metadata", broker, MetadataRequest(topics=None), MetadataResponse)
    return {topic.name or "" for topic in answer.topics if not topic.error_code}


def _restore_topic(
    cluster: Cluster,
    store: BackupStore,
    topic: SavedTopic,
    brokers: int,
    transactional_id: str,
    progress: Callable[[str], None],
) -> None:
    create_topic(
        cluster,
        topic.name,
        partitions=len(topic.partitions),
        replication_factor=min(topic.replicas, brokers),
        configs=WHILE_RESTORING,
    )
    for partition in topic.partitions:
        progress(f"{topic.name}-{partition.index}")
        writer = PartitionWriter(cluster, topic.name, partition.index, transactional_id)
        writer.write(partition.start, partition.end, pieces(store, partition))
    refuse_missing_records(cluster, topic)
    alter_configs(cluster, ConfigResourceType.TOPIC, topic.name, own_settings(topic))


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


def _refuse_fillers(manifest: Manifest, max_filler_records: int) -> None:
    partitions = [
        (partition.start, topic.name, partition) for topic in manifest.topics for partition in topic.partitions
    ]
    fillers = sum(start for start, _, _ in partitions)
    if fillers > max_filler_records:
        start, name, partition = max(partitions, key=lambda row: row[0])
        raise BackupError(
            f"the partitions start at {fillers:,} offsets together ({name}-{partition.index} at {start:,}), and "
            f"--max-filler-records is {max_filler_records:,}: a restore writes and deletes a record for each of these offsets"
        )


def _restore_groups(cluster: Cluster, manifest: Manifest, *, resume: bool) -> None:
    """A restore that continues keeps offsets that are there: consumers may have read since."""
    ends = {(topic.name, partition.index): partition.end for topic in manifest.topics for partition in topic.partitions}
    for group, rows in manifest.groups.items():
        present = committed_offsets(cluster, group) if resume else {}
        offsets = {
            (topic, index): min(offset, ends[topic, index])
            for topic, index, offset in rows
            if (topic, index) in ends and (topic, index) not in present
        }
        commit_offsets(cluster, group, offsets)


def _restore_acls(cluster: Cluster, manifest: Manifest) -> list[str]:
    entries: dict[Resource, list[Entry]] = defaultdict(list)
    for kind, name, pattern, principal, host, operation, permission in manifest.acls:
        resource = Resource(ResourceType(kind), name, PatternType(pattern))
        entries[resource].append(Entry(principal, host, Operation(operation), Permission(permission)))
    try:
        for resource, rows in entries.items():
            create_acls(cluster, resource, rows)
    except KafkaError as refusal:
        if refusal.code != ErrorCode.SECURITY_DISABLED:
            raise
        return [f"{len(manifest.acls)} ACLs: the cluster has no authorizer"]
    return []
