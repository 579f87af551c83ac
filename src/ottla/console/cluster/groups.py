"""Groups of all kinds: listed at every broker, their offsets asked of their coordinators, many at once."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client import groups as client_groups
from ottla.client.cluster import Cluster
from ottla.client.errors import check
from ottla.client.group_lag import Partition
from ottla.console.cluster.snapshot import GroupRow
from ottla.protocol.generated.list_groups_request import ListGroupsRequest
from ottla.protocol.generated.list_groups_response import ListGroupsResponse
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse

_AT_ONCE = 200
"""Groups in one request."""
_OFFSET_FETCH_BY_NAME = 9
"""Version 10 answers with topic ids instead of names."""


def list_groups(cluster: Cluster, brokers: Iterable[int]) -> list[GroupRow]:
    rows_by_group: dict[str, GroupRow] = {}
    for broker in brokers:
        answer = cluster.node_call("listGroups", broker, ListGroupsRequest(), ListGroupsResponse)
        check(answer.error_code)
        for group in answer.groups:
            rows_by_group[group.group_id] = GroupRow(
                id=group.group_id,
                kind=(group.group_type or "classic").lower(),
                state=group.group_state,
                protocol=group.protocol_type,
                coordinator=broker,
            )
    return [rows_by_group[name] for name in sorted(rows_by_group)]


def committed_offsets(cluster: Cluster, groups: Iterable[GroupRow]) -> dict[str, dict[Partition, int]]:
    """Of each group, all that it committed. A group is asked where it was listed: its coordinator holds it."""
    offsets_by_group: dict[str, dict[Partition, int]] = {}
    by_coordinator: dict[int, list[str]] = {}
    for row in groups:
        by_coordinator.setdefault(row.coordinator, []).append(row.id)
    for node, names in by_coordinator.items():
        for some in _batched(names):
            group_requests = [OffsetFetchRequestGroup(name, None, -1, None) for name in some]
            answer = cluster.node_call(
                "offsetFetch",
                node,
                OffsetFetchRequest(groups=group_requests),
                OffsetFetchResponse,
                _OFFSET_FETCH_BY_NAME,
            )
            for group in answer.groups:
                if group.error_code:
                    continue
                offsets_by_group[group.group_id] = {
                    (topic.name, row.partition_index): row.committed_offset
                    for topic in group.topics
                    for row in topic.partitions
                    if row.committed_offset >= 0
                }
    return offsets_by_group


def owned_partitions(cluster: Cluster, groups: Iterable[GroupRow]) -> dict[str, frozenset[Partition]]:
    """What the members of classic and consumer groups own; a group without members owns nothing."""
    by_coordinator: dict[int, list[GroupRow]] = {}
    for row in groups:
        if row.kind in ("classic", "consumer") and row.state not in ("Empty", "Dead"):
            by_coordinator.setdefault(row.coordinator, []).append(row)
    owned: dict[str, frozenset[Partition]] = {}
    for node, rows in by_coordinator.items():
        kinds = {row.id: row.kind for row in rows}
        for some in _batched(list(kinds)):
            consumer, classic = ([name for name in some if kinds[name] == kind] for kind in ("consumer", "classic"))
            owned |= client_groups.owned_partitions(cluster, node, consumer, classic)
    return owned


def _batched(names: list[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(names[i : i + _AT_ONCE]) for i in range(0, len(names), _AT_ONCE))
