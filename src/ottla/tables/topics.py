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

from ottla.client.connection import Connection
from ottla.client.errors import AuthenticationFailed, BadSettings, ClientError, UnsupportedVersion
from ottla.client.settings import ClientSettings, client_settings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.user_error import UserError
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.metadata_response import MetadataResponse

READ_COMMITTED = 1
_METADATA_VERSION = 8
_LIST_OFFSETS_VERSION = 5
_BACKOFF_S = 0.1


class TableError(UserError):
    """A topic cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Leader:
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
    with Cluster(settings_from(options)) as cluster:
        cluster.partitions([])


class Cluster:
    """One cluster's metadata, through one connection to any broker and one connection to each leader."""

    def __init__(self, settings: ClientSettings, timeout_s: float | None = None) -> None:
        self.settings = settings
        self._timeout_s = timeout_s or min(settings.api_timeout_ms / 1000, 30.0)
        self._any: Connection | None = None
        self._nodes: dict[tuple[str, int], Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in (self._any, *self._nodes.values()):
            if connection is not None:
                connection.close()
        self._any = None
        self._nodes.clear()

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, Leader | None]:
        """The partitions of each topic. Raises TableError for a topic that does not exist."""
        wanted = sorted(set(topics))
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._metadata([MetadataRequestTopic(name=name) for name in wanted], deadline)
            found: dict[TopicPartition, Leader | None] = {}
            retry = False
            brokers = {broker.node_id: broker for broker in answer.brokers}
            for topic in answer.topics:
                code = ErrorCode(topic.error_code)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TableError(f"topic {topic.name!r} does not exist: create it first or check the name")
                if code == ErrorCode.NONE:
                    for one in topic.partitions:
                        broker = brokers.get(one.leader_id)
                        leader = Leader(broker.node_id, broker.host, broker.port) if broker else None
                        retry = retry or leader is None
                        found[TopicPartition(topic.name or "", one.partition_index)] = leader
                elif code.retriable:
                    retry = True
                else:
                    raise TableError(f"topic {topic.name!r}: {code.message}")
            if not retry or time.monotonic() > deadline:
                return found
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
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int | None]:
        """The offset of EARLIEST, LATEST or of the first record at or after a time in ms; None when there is none."""
        deadline = time.monotonic() + self._timeout_s
        left = dict(wanted)
        found: dict[TopicPartition, int | None] = {}
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
                mine = {partition: at for partition, at in left.items() if leaders[partition] == leader}
                try:
                    done, problem = self._offsets_at(leader, mine, isolation_level, deadline)
                except ClientError as reason:
                    done, problem = {}, str(reason)
                    self._forget(leader)
                found.update(done)
            left = {partition: at for partition, at in left.items() if partition not in found}
            if left and time.monotonic() > deadline:
                raise TableError(f"offsets of {', '.join(map(str, left))} were not answered: {problem}")
            if left:
                time.sleep(_BACKOFF_S)
        return found

    def _offsets_at(
        self, leader: Leader, wanted: Mapping[TopicPartition, int], isolation_level: int, deadline: float
    ) -> tuple[dict[TopicPartition, int | None], str]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, at in wanted.items():
            entry = ListOffsetsPartition(partition_index=partition.partition, timestamp=at)
            topics.setdefault(partition.topic, []).append(entry)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        answer = self.connection(leader, deadline).call(request, ListOffsetsResponse, deadline, _LIST_OFFSETS_VERSION)
        found: dict[TopicPartition, int | None] = {}
        problem = ""
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                code = ErrorCode(one.error_code)
                if code == ErrorCode.NONE:
                    found[partition] = one.offset if one.offset >= 0 else None
                elif code.retriable:
                    problem = code.message
                else:
                    raise TableError(f"{partition}: {code.message}")
        return found, problem

    def connection(self, leader: Leader, deadline: float) -> Connection:
        address = leader.host, leader.port
        if address not in self._nodes:
            self._nodes[address] = Connection(leader.host, leader.port, self.settings, deadline)
        return self._nodes[address]

    def _forget(self, leader: Leader) -> None:
        connection = self._nodes.pop((leader.host, leader.port), None)
        if connection is not None:
            connection.close()

    def _metadata(self, topics: list[MetadataRequestTopic] | None, deadline: float) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                if self._any is None:
                    self._any = self._connect_any(deadline)
                return self._any.call(request, MetadataResponse, deadline, _METADATA_VERSION)
            except ClientError as reason:
                problem = reason
                if self._any is not None:
                    self._any.close()
                    self._any = None
                if isinstance(reason, AuthenticationFailed | BadSettings | UnsupportedVersion):
                    break
            time.sleep(_BACKOFF_S)
        addresses = ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap)
        raise TableError(f"no broker of {addresses} answers: {problem}") from problem

    def _connect_any(self, deadline: float) -> Connection:
        problem: ClientError | None = None
        each = max(1.0, (deadline - time.monotonic()) / max(1, len(self.settings.bootstrap)))
        for host, port in self.settings.bootstrap:
            try:
                return Connection(host, port, self.settings, min(deadline, time.monotonic() + each))
            except ClientError as reason:
                problem = reason
        raise problem or TableError("no bootstrap servers")
