"""Requests of a reader before it reads: partitions, leaders, and offsets by place or time.

Temporary errors (a moving leader, a broker restarting) are retried until the deadline. Every other error is one
`TableError` with what to do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from ottla.client.cluster import Cluster
from ottla.client.connection import BrokerConnection
from ottla.client.errors import AuthenticationFailed, BadSettings, ClientError, UnsupportedVersion
from ottla.client.settings import ClientSettings, client_settings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
from ottla.protocol.generated.metadata_response import MetadataResponse

READ_COMMITTED = 1
_LIST_OFFSETS_VERSION = 5
_BACKOFF_S = 0.1


class TableError(UserError):
    """A topic cannot be read or written."""


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    node_id: int
    host: str
    port: int


def settings_from(options: Mapping[str, str], client_id: str = "ottla-tables") -> ClientSettings:
    """From `kafka.*` options without their prefix."""
    servers = options.get("bootstrap.servers")
    if not servers:
        raise TableError("the option kafka.bootstrap.servers is missing: give it HOST:PORT of a broker")
    try:
        return client_settings(servers, options, client_id=client_id)
    except ClientError as reason:
        raise TableError(str(reason)) from reason


def check_reachable(options: Mapping[str, str]) -> None:
    """Raises TableError with the reason if no broker answers or the login fails. Our own client reports the reason;
    librdkafka only waits."""
    with TopicMetadata(settings_from(options)) as metadata:
        metadata.partitions([])


class TopicMetadata:
    """The topics of a cluster for a reader: partitions, leaders, and offsets by place or time."""

    def __init__(self, settings: ClientSettings, timeout_s: float | None = None) -> None:
        self._cluster = Cluster(settings)
        self._timeout_s = timeout_s or min(settings.api_timeout_ms / 1000, 30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionLeader | None]:
        """The partitions of each topic. Raises TableError for a topic that does not exist."""
        names = sorted(set(topics))
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._metadata(names, deadline)
            leaders: dict[TopicPartition, PartitionLeader | None] = {}
            retry = False
            brokers = {broker.node_id: broker for broker in answer.brokers}
            for topic in answer.topics:
                code = ErrorCode(topic.error_code)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TableError(f"topic {topic.name!r} does not exist: create it first or check the name")
                if code == ErrorCode.NONE:
                    for partition in topic.partitions:
                        broker = brokers.get(partition.leader_id)
                        leader = PartitionLeader(broker.node_id, broker.host, broker.port) if broker else None
                        retry = retry or leader is None
                        leaders[TopicPartition(topic.name or "", partition.partition_index)] = leader
                elif code.retriable:
                    retry = True
                else:
                    raise TableError(f"topic {topic.name!r}: {code.message}")
            if not retry or time.monotonic() > deadline:
                return leaders
            time.sleep(_BACKOFF_S)

    def topics_like(self, pattern: str) -> list[str]:
        """Topics whose whole name matches, as Java's Matcher.matches does; internal topics only if named exactly."""
        try:
            compiled = re.compile(pattern)
        except re.error as reason:
            raise TableError(f"subscribePattern {pattern!r} is no regular expression: {reason}") from reason
        answer = self._metadata(None, time.monotonic() + self._timeout_s)
        return sorted(t.name for t in answer.topics if t.name and not t.is_internal and compiled.fullmatch(t.name))

    def offsets(
        self, places: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int | None]:
        """The offset of EARLIEST, LATEST or of the first record at or after a time in ms; None when there is none."""
        deadline = time.monotonic() + self._timeout_s
        left = dict(places)
        offsets: dict[TopicPartition, int | None] = {}
        while left:
            leaders = self.partitions({partition.topic for partition in left})
            for partition in left:
                if partition not in leaders:
                    raise TableError(f"{partition} does not exist: the topic has fewer partitions")
            problem = ""
            for leader in {leaders[partition] for partition in left}:
                if leader is None:
                    problem = "a partition has no leader"
                    continue
                of_leader = {partition: at for partition, at in left.items() if leaders[partition] == leader}
                try:
                    done, problem = self._offsets_at(leader, of_leader, isolation_level, deadline)
                except ClientError as reason:
                    done, problem = {}, str(reason)
                offsets.update(done)
            left = {partition: at for partition, at in left.items() if partition not in offsets}
            if left and time.monotonic() > deadline:
                raise TableError(f"offsets of {', '.join(map(str, left))} were not answered: {problem}")
            if left:
                time.sleep(_BACKOFF_S)
        return offsets

    def _offsets_at(
        self, leader: PartitionLeader, places: Mapping[TopicPartition, int], isolation_level: int, deadline: float
    ) -> tuple[dict[TopicPartition, int | None], str]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, at in places.items():
            entry = ListOffsetsPartition(partition_index=partition.partition, timestamp=at)
            topics.setdefault(partition.topic, []).append(entry)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        answer = self.connection(leader, deadline).call(request, ListOffsetsResponse, deadline, _LIST_OFFSETS_VERSION)
        offsets: dict[TopicPartition, int | None] = {}
        problem = ""
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                code = ErrorCode(row.error_code)
                if code == ErrorCode.NONE:
                    offsets[partition] = row.offset if row.offset >= 0 else None
                elif code.retriable:
                    problem = code.message
                else:
                    raise TableError(f"{partition}: {code.message}")
        return offsets, problem

    def connection(self, leader: PartitionLeader, deadline: float) -> BrokerConnection:
        return self._cluster.node(leader.node_id, deadline)

    def _metadata(self, topics: list[str] | None, deadline: float) -> MetadataResponse:
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                return self._cluster.metadata(topics, deadline)
            except ClientError as reason:
                problem = reason
                if isinstance(reason, AuthenticationFailed | BadSettings | UnsupportedVersion):
                    break
            time.sleep(_BACKOFF_S)
        addresses = ",".join(f"{host}:{port}" for host, port in self._cluster.settings.bootstrap)
        raise TableError(f"no broker of {addresses} answers: {problem}") from problem
