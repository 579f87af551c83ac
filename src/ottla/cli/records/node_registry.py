"""The schema registry that `ottla up` started beside its node, for verbs that were called without --registry."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ottla.client.settings import parse_addresses
from ottla.security.hosts import is_loopback

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target

_SETTING = "ottla.schema.registry.url"


def registry_url(target: Target) -> str:
    """The profile's registry, else the node's; "" without one.

    A node's setting counts only if node and registry are on this machine: a stranger's broker must not choose where
    this program sends requests.
    """
    if target.profile.registry or not all(is_loopback(host) for host, _ in parse_addresses(target.profile.bootstrap)):
        return target.profile.registry
    from ottla.client.configs import ConfigResourceType, describe_configs
    from ottla.client.errors import ClientError
    from ottla.model.errors import KafkaError

    try:
        with target.cluster() as cluster:
            node = str(cluster.describe("metadata", []).brokers[0].node_id)
            rows = describe_configs(cluster, ConfigResourceType.BROKER, [node])[node]
    except (ClientError, KafkaError):  # no right to see settings: records are shown without their schemas
        return ""
    url = next((row.value or "" for row in rows if row.name == _SETTING), "")
    return url if is_loopback(urlsplit(url).hostname or "") else ""
