"""Throttles of a reassignment: the rates of brokers and the replicas of topics that they hold for (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.client.cluster import Cluster
from ottla.client.configs import DELETE, SET, Change, ConfigResourceType, alter_configs
from ottla.client.placements import Placement

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_DIRECTORIES = "replica.alter.log.dirs.io.max.bytes.per.second"


def set_throttles(
    cluster: Cluster,
    current: Mapping[tuple[str, int], Placement],
    target_placements: Mapping[tuple[str, int], Placement],
    rate: int,
) -> None:
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, partition), placement in target_placements.items():
        old = current[topic, partition].replicas if (topic, partition) in current else ()
        added = [broker for broker in placement.replicas if broker not in old]
        brokers |= {*old, *placement.replicas}
        leaders.setdefault(topic, []).extend(f"{partition}:{broker}" for broker in old)
        followers.setdefault(topic, []).extend(f"{partition}:{broker}" for broker in added)
    for topic, led in leaders.items():
        changes: list[Change] = [
            (name, SET, ",".join(sorted(listed)))
            for name, listed in zip(_REPLICAS, (led, followers[topic]), strict=True)
        ]
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, changes)
    for broker in sorted(brokers):
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), [(name, SET, str(rate)) for name in _RATES])


def set_log_dirs_throttle(cluster: Cluster, brokers: Iterable[int], rate: int) -> None:
    for broker in sorted(brokers):
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), [(_DIRECTORIES, SET, str(rate))])


def clear_throttles(cluster: Cluster, topics: Sequence[str]) -> None:
    brokers = sorted(broker.node_id for broker in cluster.describe("describeCluster").brokers)
    shown = ",".join(map(str, brokers))
    print(f"Clearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''} {shown}")
    for broker in brokers:
        changes: list[Change] = [(name, DELETE, "") for name in (*_RATES, _DIRECTORIES)]
        alter_configs(cluster, ConfigResourceType.BROKER, str(broker), changes)
    print(f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}")
    for topic in topics:
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, [(name, DELETE, "") for name in _REPLICAS])
