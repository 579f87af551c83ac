"""Requests of a reader before it reads: partitions, leaders, and offsets by place or time.

Temporary errors (a moving leader, a broker restarting) are retried until the deadline. Every other error is one
`TableError` with what to do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import BrokerConnection
from ottla.client.errors import AuthenticationFailed, BadSettings, ClientError, UnsupportedVersion
from ottla.client.settings import ClientSettings, client_settings
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_to_str
from ottla.model.user_error import UserError
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
from ottla.protocol.generated.metadata_response import MetadataResponse, MetadataResponseTopic
from ottla.protocol.generated.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.generated.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedPartition:
    """What a position is bound to: the topic's id and the leader's epoch, beside the leader of the moment."""

    leader: PartitionLeader | None
    topic_id: str
    """As Kafka prints topic ids. `cluster:ID` where the topic has none (brokers before 2.8)."""
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopics:
    """What a stored position is compared with: the id of the cluster and of each topic that exists."""

    cluster_id: str
    topic_ids: Mapping[str, str]


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


Value = TypeVar("Value")
_Ask = Callable[
    [Mapping[TopicPartition, LedPartition], PartitionLeader, float], tuple[dict[TopicPartition, Value], str]
]
"""What the partitions of one leader answer until a deadline, and the last reason why one of them did not."""


def _refusal(partition: TopicPartition, error_code: int) -> str:
    """The text of a temporary error, empty without an error. Raises TableError for any other error."""
    code = ErrorCode(error_code)
    if code == ErrorCode.NONE or code.retriable:
        return "" if code == ErrorCode.NONE else code.message
    raise TableError(f"{partition}: {code.message}")


def _id_of(topic: MetadataResponseTopic, cluster_id: str | None) -> str:
    return uuid_to_str(topic.topic_id) if topic.topic_id != ZERO_UUID else f"cluster:{cluster_id}"


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
        return {partition: state.leader for partition, state in self.states(topics).items()}

    def states(self, topics: Iterable[str]) -> dict[TopicPartition, LedPartition]:
        """The partitions of each topic with id and leader epoch. Raises TableError for a topic that does not exist."""
        names = sorted(set(topics))
        deadline = time.monotonic() + self._timeout_s
        while True:
            answer = self._metadata(names, deadline)
            states: dict[TopicPartition, LedPartition] = {}
            retry = False
            brokers = {broker.node_id: broker for broker in answer.brokers}
            for topic in answer.topics:
                code = ErrorCode(topic.error_code)
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TableError(f"topic {topic.name!r} does not exist: create it first or check the name")
                if code == ErrorCode.NONE:
                    topic_id = _id_of(topic, answer.cluster_id)
                    for partition in topic.partitions:
                        broker = brokers.get(partition.leader_id)
                        leader = PartitionLeader(broker.node_id, broker.host, broker.port) if broker else None
                        retry = retry or leader is None
                        states[TopicPartition(topic.name or "", partition.partition_index)] = LedPartition(
                            leader=leader, topic_id=topic_id, leader_epoch=partition.leader_epoch
                        )
                elif code.retriable:
                    retry = True
                else:
                    raise TableError(f"topic {topic.name!r}: {code.message}")
            if not retry or time.monotonic() > deadline:
                return states
            time.sleep(_BACKOFF_S)

    def present(self, topics: Iterable[str]) -> ClusterTopics:
        """The ids of those of the topics that exist."""
        answer = self._metadata(sorted(set(topics)), time.monotonic() + self._timeout_s)
        ids = {
            topic.name: _id_of(topic, answer.cluster_id)
            for topic in answer.topics
            if topic.name and not topic.error_code
        }
        return ClusterTopics(cluster_id=answer.cluster_id or "", topic_ids=ids)

    def topics_like(self, pattern: str) -> list[str]:
        """Topics whose whole name matches, as Java's Matcher.matches does; internal topics only if named exactly."""
        try:
            compiled = re.compile(pattern)
        except re.error as reason:
            raise TableError(f"subscribePattern {pattern!r} is not a regular expression: {reason}") from reason
        answer = self._metadata(None, time.monotonic() + self._timeout_s)
        return sorted(t.name for t in answer.topics if t.name and not t.is_internal and compiled.fullmatch(t.name))

    def offsets(
        self, places: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int | None]:
        """The offset of EARLIEST, LATEST or of the first record at or after a time in ms; None when there is none."""
        return self._from_leaders(places, partial(self._offsets_at, places, isolation_level))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where each leader's log ends for the epoch, or for the last epoch before it; -1 if the leader has neither.

        A position beyond that end was read from a history that the log no longer has (KIP-320).
        """
        return self._from_leaders(epochs, partial(self._epoch_ends_at, epochs))

    def _from_leaders(self, partitions: Iterable[TopicPartition], ask: _Ask[Value]) -> dict[TopicPartition, Value]:
        """Asks the leader of each partition, again while leaders move, until the deadline."""
        deadline = time.monotonic() + self._timeout_s
        left = set(partitions)
        answers: dict[TopicPartition, Value] = {}
        while left:
            states = self.states({partition.topic for partition in left})
            for partition in left:
                if partition not in states:
                    raise TableError(f"{partition} does not exist: the topic has fewer partitions")
            problem = ""
            for leader in {states[partition].leader for partition in left}:
                if leader is None:
                    problem = "a partition has no leader"
                    continue
                try:
                    of_leader = {
                        partition: states[partition] for partition in left if states[partition].leader == leader
                    }
                    done, reason = ask(of_leader, leader, deadline)
                    answers.update(done)
                    problem = reason or problem
                except ClientError as failure:
                    problem = str(failure)
            left -= set(answers)
            if left and time.monotonic() > deadline:
                raise TableError(f"offsets of {', '.join(map(str, sorted(left)))} were not answered: {problem}")
            if left:
                time.sleep(_BACKOFF_S)
        return answers

    def _offsets_at(
        self,
        places: Mapping[TopicPartition, int],
        isolation_level: int,
        states: Mapping[TopicPartition, LedPartition],
        leader: PartitionLeader,
        deadline: float,
    ) -> tuple[dict[TopicPartition, int | None], str]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, state in states.items():
            entry = ListOffsetsPartition(partition.partition, state.leader_epoch, places[partition])
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
                problem = _refusal(partition, row.error_code) or problem
                if not row.error_code:
                    offsets[partition] = row.offset if row.offset >= 0 else None
        return offsets, problem

    def _epoch_ends_at(
        self,
        epochs: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, LedPartition],
        leader: PartitionLeader,
        deadline: float,
    ) -> tuple[dict[TopicPartition, int], str]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for partition, state in states.items():
            entry = OffsetForLeaderPartition(partition.partition, state.leader_epoch, epochs[partition])
            topics.setdefault(partition.topic, []).append(entry)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()]
        )
        answer = self.connection(leader, deadline).call(request, OffsetForLeaderEpochResponse, deadline)
        ends: dict[TopicPartition, int] = {}
        problem = ""
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition)
                problem = _refusal(partition, row.error_code) or problem
                if not row.error_code:
                    ends[partition] = row.end_offset
        return ends, problem

    def connection(self, leader: PartitionLeader, deadline: float) -> BrokerConnection:
        return self._cluster.node(leader.node_id, deadline)

    def _metadata(self, topics: list[str] | None, deadline: float) -> MetadataResponse:
        problem: Exception | None = None
        while time.monotonic() < deadline:
            try:
                return self._cluster.metadata(topics, deadline)
            except ClientError as reason:
                problem = reason
                if isinstance(reason, AuthenticationFailed):
                    raise TableError(f"{self._addresses} refused the login: {reason}") from reason
                if isinstance(reason, BadSettings | UnsupportedVersion):
                    break
            time.sleep(_BACKOFF_S)
        raise TableError(f"no broker of {self._addresses} answers: {problem}") from problem

    @property
    def _addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._cluster.settings.bootstrap)
