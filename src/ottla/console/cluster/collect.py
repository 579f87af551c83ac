"""One look at the whole cluster: metadata, offsets, sizes and groups, in a handful of requests a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.group_lag import Partition, UnreadTimes
from ottla.console.cluster.groups import committed_offsets, list_groups, owned_partitions
from ottla.console.cluster.offsets import leader_offsets
from ottla.console.cluster.snapshot import BrokerRow, ClusterSnapshot, GroupRow, PartitionRow, TopicRow
from ottla.model.errors import KafkaError
from ottla.model.ids import uuid_to_str
from ottla.model.marker_groups import MARKER_TOPIC, is_marker_group
from ottla.protocol.generated.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.protocol.generated.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.offset_timestamps import EARLIEST, LATEST

Result = TypeVar("Result")


def collect(cluster: Cluster, unread: UnreadTimes | None = None, *, marker_groups: bool = False) -> ClusterSnapshot:
    """Raises an error only if the metadata cannot be read; `problems` lists every other failed call.

    Groups that hold markers of exactly-once writes are left out without `marker_groups`: their offsets are no positions.
    A caller that looks again and again passes the `unread` times of its last look.
    """
    started = time.monotonic()
    problems: list[str] = []
    metadata = cluster.describe("metadata", None)
    leaders = {
        (topic.name or "", row.partition_index): row.leader_id
        for topic in metadata.topics
        for row in topic.partitions
        if row.leader_id >= 0
    }
    ends = _try(problems, "end offsets", lambda: leader_offsets(cluster, leaders, LATEST)) or {}
    starts = _try(problems, "start offsets", lambda: leader_offsets(cluster, leaders, EARLIEST)) or {}
    brokers = [BrokerRow(id=b.node_id, host=b.host, port=b.port, rack=b.rack or "") for b in metadata.brokers]
    sizes: dict[tuple[int, Partition], int] = {}
    brokers = [_with_log_dirs(problems, cluster, row, sizes) for row in brokers]
    answering = [row.id for row in brokers if row.answers]
    groups = _try(problems, "groups", lambda: _groups(cluster, answering, marker_groups=marker_groups)) or {}
    owned = _try(problems, "members of groups", lambda: owned_partitions(cluster, groups.values())) or {}
    groups = {name: replace(row, owned=owned.get(name, frozenset())) for name, row in groups.items()}
    topics = _topics(metadata, starts, ends, sizes)
    snapshot = ClusterSnapshot(
        taken_ms=int(time.time() * 1000),
        cluster_id=metadata.cluster_id or "",
        controller_id=metadata.controller_id,
        brokers=tuple(_with_counts(brokers, topics.values())),
        topics=topics,
        groups=groups,
        took_s=time.monotonic() - started,
        problems=tuple(problems),
    )
    places = {
        (where, snapshot.first_unread(where, offset))
        for group in groups.values()
        for where, offset in snapshot.positions(group).items()
        if offset < snapshot.ends[where]
    }
    times = UnreadTimes() if unread is None else unread
    return replace(snapshot, unread_since=times.look(cluster, leaders, places))


def _try(problems: list[str], what: str, question: Callable[[], Result]) -> Result | None:
    try:
        return question()
    except (KafkaError, ClientError) as error:
        problems.append(f"{what}: {error}")
        return None


def _topics(
    metadata: MetadataResponse,
    starts: dict[Partition, int],
    ends: dict[Partition, int],
    sizes: dict[tuple[int, Partition], int],
) -> dict[str, TopicRow]:
    topics = {}
    for topic in sorted(metadata.topics, key=lambda topic_metadata: topic_metadata.name or ""):
        name = topic.name or ""
        if topic.error_code or not name:
            continue
        rows = tuple(
            PartitionRow(
                index=row.partition_index,
                leader=row.leader_id,
                leader_epoch=row.leader_epoch,
                replicas=tuple(row.replica_nodes),
                isr=tuple(row.isr_nodes),
                offline=tuple(row.offline_replicas),
                start=starts.get((name, row.partition_index)),
                end=ends.get((name, row.partition_index)),
                size=sizes.get((row.leader_id, (name, row.partition_index))),
            )
            for row in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        )
        internal = topic.is_internal or name == MARKER_TOPIC
        topics[name] = TopicRow(name=name, id=uuid_to_str(topic.topic_id), internal=internal, partitions=rows)
    return topics


def _with_log_dirs(
    problems: list[str], cluster: Cluster, row: BrokerRow, sizes: dict[tuple[int, Partition], int]
) -> BrokerRow:
    """The broker with its log directories. A broker that refuses that call still counts as answering."""
    try:
        return _log_dirs(cluster, row, sizes)
    except (KafkaError, ClientError) as error:
        problems.append(f"log directories of broker {row.id}: {error}")
        return replace(row, answers=isinstance(error, KafkaError))


def _log_dirs(cluster: Cluster, row: BrokerRow, sizes: dict[tuple[int, Partition], int]) -> BrokerRow:
    answer = cluster.node_call("describeLogDirs", row.id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    total, offline, disk_total, disk_free = 0, [], None, None
    for directory in answer.results:
        if directory.error_code:
            offline.append(directory.log_dir)
            continue
        if directory.total_bytes >= 0:
            disk_total = max(disk_total or 0, directory.total_bytes)
            disk_free = min(disk_free, directory.usable_bytes) if disk_free is not None else directory.usable_bytes
        for topic in directory.topics:
            for replica in topic.partitions:
                if not replica.is_future_key:
                    sizes[row.id, (topic.name, replica.partition_index)] = replica.partition_size
                    total += replica.partition_size
    return replace(row, size=total, disk_total=disk_total, disk_free=disk_free, offline_dirs=tuple(offline))


def _groups(cluster: Cluster, brokers: list[int], *, marker_groups: bool) -> dict[str, GroupRow]:
    rows = {row.id: row for row in list_groups(cluster, brokers) if marker_groups or not is_marker_group(row.id)}
    with_offsets = [row for row in rows.values() if row.kind in ("classic", "consumer", "streams")]
    for group_id, committed in committed_offsets(cluster, with_offsets).items():
        rows[group_id] = replace(rows[group_id], committed=committed)
    return rows


def _with_counts(brokers: list[BrokerRow], topics: Iterable[TopicRow]) -> list[BrokerRow]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in topics:
        for row in topic.partitions:
            leaders[row.leader] = leaders.get(row.leader, 0) + 1
            for node in row.replicas:
                replicas[node] = replicas.get(node, 0) + 1
    return [replace(row, leaders=leaders.get(row.id, 0), replicas=replicas.get(row.id, 0)) for row in brokers]
