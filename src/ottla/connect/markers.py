"""Markers of exactly-once writes, as groups of the cluster."""

from __future__ import annotations

from collections.abc import Mapping


def forget_markers(client: Mapping[str, str], query_id: str) -> list[str]:
    """Deletes the markers of a query, and returns the names of the groups. The query must not run."""
    from ottla.client.cluster import Cluster
    from ottla.client.groups import delete_group, list_groups
    from ottla.client.settings import client_settings

    with Cluster(client_settings(client["bootstrap.servers"], client, client_id="ottla-markers")) as cluster:
        names = [group.group_id for group in list_groups(cluster)]
        own = [name for name in names if name.startswith("ottla-") and query_id in name]
        for name in own:
            delete_group(cluster, name)
    return own
