"""What clients can see of a server, as one value to compare: the one comparison that all data-directory tests share.

Topics by name with their ids, configs and partitions; partitions with every record, as both isolation levels show it,
and their offsets; groups with their committed offsets. Internal topics count by name, id, configs and offsets, not by
record: each coordinator may write what it likes there, and the groups show whether it was understood.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

TIMEOUT_S = 20.0


class SeenRecord(NamedTuple):
    offset: int
    leader_epoch: int | None
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class SeenPartition:
    records: tuple[SeenRecord, ...]
    committed: tuple[int, ...]
    """The offsets that read_committed shows."""
    earliest: int
    latest: int
    max_timestamp: int

    def summary(self) -> str:
        return (
            f"{self.earliest}..{self.latest}, {len(self.records)} records, {len(self.committed)} committed, "
            f"greatest timestamp at {self.max_timestamp}"
        )


@dataclass(frozen=True)
class Observation:
    cluster_id: str
    topic_ids: dict[str, str]
    configs: dict[str, dict[str, tuple[Any, ...]]]
    partitions: dict[tuple[str, int], SeenPartition]
    groups: dict[str, dict[tuple[str, int], tuple[int, str | None]]]


def observe(bootstrap_servers: str, groups: Iterable[str] = ()) -> Observation:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    listed = admin.list_topics(timeout=TIMEOUT_S)
    names = sorted(listed.topics)
    described = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
    partitions = [(name, number) for name in names for number in sorted(listed.topics[name].partitions)]
    plain = [(topic, number) for topic, number in partitions if not topic.startswith("__")]
    records = read_all(bootstrap_servers, plain)
    committed = read_all(bootstrap_servers, plain, isolation="read_committed")
    offsets = {
        name: list_offsets(admin, plain, spec)
        for name, spec in {
            "earliest": OffsetSpec.earliest(),
            "latest": OffsetSpec.latest(),
            "max_timestamp": OffsetSpec.max_timestamp(),
        }.items()
    }
    return Observation(
        cluster_id=listed.cluster_id,
        topic_ids={name: str(future.result(TIMEOUT_S).topic_id) for name, future in described.items()},
        configs={name: topic_configs(admin, name) for name in names},
        partitions={
            at: SeenPartition(
                records=tuple(records[at]),
                committed=tuple(record.offset for record in committed[at]),
                earliest=offsets["earliest"][at],
                latest=offsets["latest"][at],
                max_timestamp=offsets["max_timestamp"][at],
            )
            for at in plain
        },
        groups={group: committed_offsets(admin, group) for group in sorted(groups)},
    )


def read_all(
    bootstrap_servers: str,
    partitions: list[tuple[str, int]],
    *,
    isolation: str = "read_uncommitted",
    at_least: int = 0,
) -> dict[tuple[str, int], list[SeenRecord]]:
    """Every record from the log start to the end, per partition; waits for `at_least` records in all."""
    found: dict[tuple[str, int], list[SeenRecord]] = {at: [] for at in partitions}
    if not partitions:
        return found
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers, "group.id": "observer", "enable.partition.eof": True,
        "enable.auto.commit": False, "isolation.level": isolation, "check.crcs": True, "fetch.wait.max.ms": 50,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, -2) for topic, number in partitions])  # -2: beginning
    missing = set(partitions)
    try:
        while missing or sum(map(len, found.values())) < at_least:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"no end of {sorted(missing)} within {TIMEOUT_S} s")
            at = (message.topic(), message.partition())
            if message.error() is None:
                found[at].append(
                    SeenRecord(
                        message.offset(),
                        message.leader_epoch(),
                        message.timestamp(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                )
            elif message.error().code() == KafkaError._PARTITION_EOF:
                missing.discard(at)
            else:
                raise RuntimeError(f"{at}: {message.error()}")
    finally:
        consumer.close()
    return found


def list_offsets(admin: AdminClient, partitions: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    if not partitions:
        return {}
    asked = {TopicPartition(topic, number): spec for topic, number in partitions}
    answers = admin.list_offsets(asked, request_timeout=TIMEOUT_S)
    return {(at.topic, at.partition): future.result(TIMEOUT_S).offset for at, future in answers.items()}


def topic_configs(admin: AdminClient, topic: str) -> dict[str, tuple[Any, ...]]:
    """name -> value and where it comes from."""
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: (entry.value, entry.source) for name, entry in future.result(TIMEOUT_S).items()}


def committed_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    asked = [ConsumerGroupTopicPartitions(group)]
    (future,) = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S).values()
    found = future.result(TIMEOUT_S).topic_partitions or []
    return {(at.topic, at.partition): (at.offset, at.metadata) for at in found}
