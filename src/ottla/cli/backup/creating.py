"""`ottla backup create`: group offsets first, then records. So a restored group reads some records again and skips none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.backup.manifest import Manifest, SavedPartition, SavedTopic
from ottla.cli.backup.reading import save_partition
from ottla.cli.backup.restore_mark import refuse_half_restored
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition, uuid_to_str
from ottla.model.marker_groups import is_marker_group
from ottla.protocol.offset_timestamps import EARLIEST, LATEST

if TYPE_CHECKING:
    from ottla.cli.backup.store import BackupStore
    from ottla.client.cluster import Cluster
    from ottla.protocol.generated.metadata_response import MetadataResponseTopic

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def create_backup(
    cluster: Cluster, store: BackupStore, progress: Callable[[str], None] = lambda _text: None
) -> Manifest:
    """A new backup, or the rest of an interrupted one. Files of earlier backups of the same topics are used again."""
    store.make()
    with store.locked():
        return _create(cluster, store, progress)


def _create(cluster: Cluster, store: BackupStore, progress: Callable[[str], None]) -> Manifest:
    metadata = cluster.describe("metadata", None)
    refuse_half_restored(topic.name or "" for topic in metadata.topics)
    earlier = store.manifests()
    name = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    if earlier and not earlier[-1].complete:
        name = earlier[-1].name
    elif earlier and name <= earlier[-1].name:
        name = f"{earlier[-1].name}-1"
    manifest = Manifest(name=name, cluster_id=metadata.cluster_id or "")
    topics = [topic for topic in metadata.topics if not topic.error_code and not topic.is_internal]
    manifest.groups, manifest.acls, manifest.users = _groups(cluster), _acls(cluster), _users(cluster)
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        saved_topic = _topic(cluster, topic)
        manifest.topics.append(saved_topic)
        for partition in _partitions(cluster, store, topic, saved_topic, earlier):
            saved_topic.partitions.append(partition)
            folder = f"data/{saved_topic.topic_id}/{partition.index}"
            progress(f"{saved_topic.name}-{partition.index}")
            save_partition(cluster, store, folder, saved_topic.name, partition, lambda: store.save(manifest))
            store.save(manifest)
    manifest.complete = True
    store.save(manifest)
    return manifest


def _topic(cluster: Cluster, topic: MetadataResponseTopic) -> SavedTopic:
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.model.config_source import ConfigSource

    name = topic.name or ""
    rows = describe_configs(cluster, ConfigResourceType.TOPIC, [name])[name]
    configs = {row.name: row.value or "" for row in rows if row.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG}
    replicas = max((len(row.replica_nodes) for row in topic.partitions), default=1)
    return SavedTopic(
        name=name,
        topic_id=uuid_to_str(topic.topic_id),
        replicas=replicas,
        configs=configs,
        compacted=any(row.name == "cleanup.policy" and "compact" in (row.value or "") for row in rows),
    )


def _partitions(
    cluster: Cluster,
    store: BackupStore,
    topic: MetadataResponseTopic,
    saved_topic: SavedTopic,
    earlier: list[Manifest],
) -> list[SavedPartition]:
    from ottla.client.offsets import list_offsets

    places = [(saved_topic.name, row.partition_index) for row in topic.partitions]
    starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST), read_committed=True)
    partitions = []
    for place in sorted(places):
        start, end = starts[place], ends[place]
        for answer in (start, end):
            if isinstance(answer, KafkaError):
                raise answer
        first, last = getattr(start, "offset", 0), getattr(end, "offset", 0)
        partition = SavedPartition(index=place[1], start=first, end=max(first, last))
        if not saved_topic.compacted:  # an old file has keys whose tombstones the cleaner may have removed since
            _use_earlier(cluster, store, saved_topic, partition, earlier)
        partitions.append(partition)
    return partitions


def _use_earlier(
    cluster: Cluster, store: BackupStore, topic: SavedTopic, partition: SavedPartition, earlier: list[Manifest]
) -> None:
    """Takes over the segments of the newest backup, if the log still has their history and the folder their files."""
    from ottla.tables.topics import TopicMetadata

    for manifest in reversed(earlier):
        before = manifest.partition(topic.topic_id, partition.index)
        if manifest.compacted(topic.topic_id):
            return
        if before is None or not before.segments:
            continue
        last = before.segments[-1]
        if last.end > partition.end:
            return
        place = TopicPartition(topic.name, partition.index)
        with TopicMetadata(cluster.settings) as metadata:
            if metadata.epoch_ends({place: last.epoch})[place] < last.end:
                return  # a leader with an older log was elected, and the log was cut
        segments = [segment for segment in before.segments if segment.end > partition.start]
        if all(store.size(segment.file) == segment.size for segment in segments):
            partition.segments = segments
        return


def _groups(cluster: Cluster) -> dict[str, list[list[object]]]:
    from ottla.client.groups import committed_offsets, consumer_groups

    return {
        group.group_id: [
            [topic, index, offset] for (topic, index), offset in committed_offsets(cluster, group.group_id).items()
        ]
        for group in consumer_groups(cluster)
        if not is_marker_group(group.group_id)
    }


def _acls(cluster: Cluster) -> list[list[object]]:
    from ottla.client.acls import describe_acls

    try:
        acls = describe_acls(cluster)
    except KafkaError as refusal:
        if refusal.code != ErrorCode.SECURITY_DISABLED:
            raise
        return []
    return [
        [resource.kind, resource.name, resource.pattern, *entry]
        for resource, entries in acls.items()
        for entry in entries
    ]


def _users(cluster: Cluster) -> list[list[object]]:
    from ottla.client.errors import check
    from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
    from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

    request = DescribeUserScramCredentialsRequest(None)
    answer = cluster.any_call("describeUserScramCredentials", request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message)
    return [[row.user, _MECHANISMS[info.mechanism - 1]] for row in answer.results for info in row.credential_infos]
