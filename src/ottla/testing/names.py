"""Names that belong to one test: fresh names, and namespaces whose topics and groups are deleted together."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.cluster import Cluster
from ottla.client.groups import delete_group, list_groups
from ottla.client.topics import delete_topic, list_topics
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.testing.broker import Broker

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_PREFIX = 200


def fresh_name(prefix: str) -> str:
    """`prefix` and eight random digits: unique among the workers of pytest-xdist too."""
    return f"{_NOT_IN_NAMES.sub('-', prefix)[:_LONGEST_PREFIX]}-{secrets.token_hex(4)}"


class Namespace:
    """Topics and groups whose names begin with `prefix`."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self._broker = broker
        self.prefix = prefix

    def name(self, name: str) -> str:
        """A name in the namespace, for a topic or a group."""
        return f"{self.prefix}.{name}"

    def topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic in the namespace, and return its full name."""
        full_name = self.name(name)
        self._broker.create_topic(full_name, partitions=partitions, settings=settings)
        return full_name

    def wipe(self, cluster: Cluster) -> None:
        """Delete what is there now. A group with members cannot be deleted and stays."""
        for topic in list_topics(cluster):
            if (topic.name or "").startswith(f"{self.prefix}."):
                delete_topic(cluster, topic.name or "")
        for group in list_groups(cluster):
            if group.group_id.startswith(f"{self.prefix}."):
                try:
                    delete_group(cluster, group.group_id)
                except KafkaError as error:
                    if error.code != ErrorCode.NON_EMPTY_GROUP:
                        raise
