"""Topics of another cluster: which are meant, what they are called on this side, and how they are made. MirrorMaker's names.

`replication.policy.class` DefaultReplicationPolicy puts the source cluster's alias and a separator before a topic's name,
IdentityReplicationPolicy keeps it. A topic that came from the target is not sent back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.connect.clients import librdkafka_settings
from ottla.connect.config import need, patterns
from ottla.model.user_error import UserError

_TIMEOUT_S = 30.0
_EXCLUDED = r"mm2.*\.internal,.*\.replica,__.*,connect-offsets"
_POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")


def cluster_settings(config: Mapping[str, str], side: str) -> dict[str, str]:
    """The client settings of the cluster at `side` (source or target): all that begin with `SIDE.cluster.`."""
    prefix = f"{side}.cluster."
    need(config, f"{prefix}bootstrap.servers")
    return {
        name.removeprefix(prefix): value
        for name, value in config.items()
        if name.startswith(prefix) and name != f"{prefix}alias"
    }


class RemoteTopics:
    def __init__(self, config: Mapping[str, str]) -> None:
        policy = config.get("replication.policy.class", _POLICIES[0]).rpartition(".")[2]
        if policy not in _POLICIES:
            raise UserError(f"replication.policy.class is one of {', '.join(_POLICIES)}, not {policy!r}")
        self._separator = config.get("replication.policy.separator", ".")
        alias = config.get("source.cluster.alias", "source")
        self._prefix = f"{alias}{self._separator}" if policy == _POLICIES[0] else ""
        self._back = config.get("target.cluster.alias", "target") + self._separator
        self._included = patterns(config, "topics", ".*")
        self._excluded = patterns(config, "topics.exclude", _EXCLUDED)

    def name(self, topic: str) -> str:
        return f"{self._prefix}{topic}"

    def chosen(self, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if self._is_chosen(topic)]

    def _is_chosen(self, topic: str) -> bool:
        if self._prefix and topic.startswith(self._back):
            return False  # it came from there
        included = any(pattern.fullmatch(topic) for pattern in self._included)
        return included and not any(pattern.fullmatch(topic) for pattern in self._excluded)


def ensure_topic(
    client: Mapping[str, str], name: str, partitions: int, settings: Callable[[], Mapping[str, str]] = dict
) -> None:
    """Makes a topic of at least so many partitions, so that a record finds its own again; a new one with `settings`."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import KafkaError, NewPartitions, NewTopic

    admin = AdminClient(librdkafka_settings(client))
    try:
        # Not list_topics: where brokers make topics by themselves, asking for one would make it, with their settings.
        description = admin.describe_topics(TopicCollection([name]))[name].result(_TIMEOUT_S)
        if len(description.partitions) < partitions:
            admin.create_partitions([NewPartitions(name, partitions)])[name].result(_TIMEOUT_S)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UserError(f"the topic {name} cannot be made: {problem.args[0].str()}") from problem
    else:
        return
    try:
        admin.create_topics([NewTopic(name, partitions, -1, config=dict(settings()))])[name].result(_TIMEOUT_S)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise UserError(f"the topic {name} cannot be made: {problem.args[0].str()}") from problem
