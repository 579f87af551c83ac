"""What a running node answers about itself, as JSON: the recorder keeps it, and today's node must answer the same.

Every function takes a `Cluster` or the bootstrap servers and asks over the wire. What changes with every start (ports,
times of an answer) is left out here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.client.acls import describe_acls
from ottla.client.cluster import Cluster
from ottla.client.configs import ConfigResourceType, describe_configs, list_config_resources
from ottla.client.groups import describe_group, list_groups
from ottla.client.settings import client_settings
from ottla.client.share_groups import describe_share_group, share_offsets
from ottla.client.streams_groups import describe_streams_group
from ottla.client.topics import list_topics
from ottla.client.transactions import describe_producers, describe_transaction, list_transactions
from ottla.model.config_source import ConfigSource
from ottla.model.ids import uuid_to_str
from ottla.protocol.generated.api_versions_request import ApiVersionsRequest
from ottla.protocol.generated.api_versions_response import ApiVersionsResponse
from ottla.protocol.generated.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.protocol.generated.describe_client_quotas_response import DescribeClientQuotasResponse
from ottla.protocol.generated.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.protocol.generated.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse
from ottla.protocol.primitives import Struct
from tests.upgrade import rows

Json = dict[str, Any]
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_VOLATILE = {"throttle_time_ms", "lag", "client_host", "host", "port"}


@contextmanager
def connected(servers: str, **properties: str) -> Iterator[Cluster]:
    with Cluster(client_settings(servers, properties)) as cluster:
        yield cluster


def plain(answer: Any) -> Any:
    """A decoded answer as JSON, without what changes with every start."""
    if isinstance(answer, Struct):
        names = [name for name in answer.__slots__ if name not in _VOLATILE]
        return {name: plain(getattr(answer, name)) for name in names}
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    if isinstance(answer, bytes | memoryview | bytearray):
        return rows.text(bytes(answer))
    if isinstance(answer, str | int | float | None):
        return answer
    return uuid_to_str(answer)


def cluster_id(cluster: Cluster) -> str:
    return str(cluster.describe("describeCluster").cluster_id)


def features(cluster: Cluster) -> Json:
    """Finalized feature levels; the epoch moves with every record of the metadata log."""
    request = ApiVersionsRequest("upgrade", "1")
    answer = cluster.any_call("apiVersions", request, ApiVersionsResponse)
    return {one.name: one.max_version_level for one in answer.finalized_features}


def topics(cluster: Cluster) -> Json:
    """Id, partitions with replicas, and the settings of the topic's own, of every topic."""
    found = {one.name: one for one in list_topics(cluster) if one.name}
    configs = describe_configs(cluster, ConfigResourceType.TOPIC, sorted(found))
    return {
        name: {
            "id": plain(found[name].topic_id),
            "partitions": {str(row.partition_index): sorted(row.replica_nodes) for row in found[name].partitions},
            "configs": _own(configs[name]),
        }
        for name in sorted(found)
    }


_OWN = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.DYNAMIC_GROUP_CONFIG, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
)  # fmt: skip


def _own(configs: Iterable[Any]) -> Json:
    return {one.name: one.value for one in sorted(configs, key=lambda one: one.name) if one.config_source in _OWN}


def configs(cluster: Cluster, broker: int = 1) -> Json:
    """Dynamic settings of the cluster, a broker, groups and client metrics."""
    kinds = {"group": ConfigResourceType.GROUP, "client-metrics": ConfigResourceType.CLIENT_METRICS}
    found: Json = {}
    for label, kind in kinds.items():
        for name in list_config_resources(cluster, kind):
            found[f"{label} {name}"] = _own(describe_configs(cluster, kind, [name])[name])
    for name in ("", str(broker)):
        found[f"broker {name}"] = _own(describe_configs(cluster, ConfigResourceType.BROKER, [name])[name])
    return found


def records(servers: str, places: Iterable[rows.Place], **settings: Any) -> Json:
    """Every record of the partitions, as readers of both isolation levels see it."""
    places = sorted(places)
    every = rows.read(servers, places, committed=False, **settings)
    stable = rows.read(servers, places, committed=True, **settings)
    found: Json = {}
    for topic, partition in places:
        one, other = every[topic, partition], stable[topic, partition]
        offsets = {row[0] for row in other["rows"]}
        hidden = [row[0] for row in one["rows"] if row[0] not in offsets]
        found[f"{topic}-{partition}"] = {**one, "stable_end": other["end"], "not_committed": hidden}
    return found


def places(topics: Json) -> list[rows.Place]:
    """Every partition of the topics that hold records of users."""
    named = {name: one for name, one in topics.items() if name not in INTERNAL}
    return [(name, int(partition)) for name, one in named.items() for partition in one["partitions"]]


def transactions(cluster: Cluster) -> Json:
    found = {}
    for _, listed in list_transactions(cluster):
        _, state = describe_transaction(cluster, listed.transactional_id)
        found[listed.transactional_id] = plain(state)
    return found


def producers(cluster: Cluster, places: Iterable[tuple[str, int]]) -> Json:
    return {
        f"{topic}-{partition}": sorted(map(plain, describe_producers(cluster, topic, partition)), key=str)
        for topic, partition in places
    }


def security(cluster: Cluster) -> Json:
    acls = describe_acls(cluster)
    users = cluster.any_call(
        "describeUserScramCredentials", DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse
    )
    quotas = cluster.any_call(
        "describeClientQuotas", DescribeClientQuotasRequest([], False), DescribeClientQuotasResponse
    )
    return {
        "acls": {str(resource): sorted(map(str, entries)) for resource, entries in sorted(acls.items(), key=str)},
        "users": {one.user: sorted(map(plain, one.credential_infos), key=str) for one in users.results},
        "quotas": sorted(map(plain, quotas.entries or []), key=str),
    }


def groups(cluster: Cluster) -> Json:
    """Every group: its kind, members and committed offsets."""
    found = {}
    for listed in sorted(list_groups(cluster), key=lambda one: one.group_id):
        name, kind = listed.group_id, listed.group_type
        described: Json = {"kind": kind}
        if kind in {"classic", "consumer"}:
            description = describe_group(cluster, name)
            described["epoch"] = description.group_epoch
            described["members"] = {
                one.instance_id or one.member_id: [list(map(list, one.assignment)), one.epoch]
                for one in description.members
            }
        if kind == "share":
            described["epoch"] = describe_share_group(cluster, name).group_epoch
            described["starts"] = {f"{t}-{p}": row.start_offset for (t, p), row in share_offsets(cluster, name).items()}
        if kind == "streams":
            described["group"] = _streams_group(plain(describe_streams_group(cluster, name)))
        described["offsets"] = committed(cluster, name) if kind != "share" else {}
        found[name] = described
    return found


def _streams_group(group: Json) -> Json:
    """Without the partition counts of internal topics: the coordinator keeps them in memory while it has members."""
    for subtopology in group["topology"]["subtopologies"]:
        for topic in subtopology["repartition_source_topics"] + subtopology["state_changelog_topics"]:
            del topic["partitions"]
    return group


def committed(cluster: Cluster, group: str) -> Json:
    """Offset, leader epoch and metadata text of each partition; what a transaction still holds back is an error code."""
    request = OffsetFetchRequest(group, None, [OffsetFetchRequestGroup(group, topics=None)], require_stable=True)
    answer = cluster.coordinator_call(
        "offsetFetch", group, request, OffsetFetchResponse, lambda a: a.groups[0].error_code, highest=9
    )
    return {
        f"{topic.name}-{row.partition_index}": [
            row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code,
        ]
        for topic in answer.groups[0].topics
        for row in topic.partitions
    }  # fmt: skip
