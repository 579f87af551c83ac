"""Typed requests on a raw connection: one try, no retries, no cleverness, so that a test knows what was answered."""

from __future__ import annotations

from typing import Any

from ottla.protocol.api import encode_request, response_class, response_header_version
from ottla.protocol.generated.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.protocol.generated.metadata_response import MetadataResponse
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import SimpleRecord, build_batch, iterate_batches, iterate_records
from tests.support.frames import RawConnection


class Closed(Exception):
    """The server ended the connection instead of answering."""


def encoded(
    request: Any, version: int | None = None, correlation_id: int = 1, client_id: str | None = "robust"
) -> bytes:
    """A whole frame, length included."""
    return b"".join(
        encode_request(request, request.MAX_VERSION if version is None else version, correlation_id, client_id)
    )


def call(connection: RawConnection, request: Any, version: int | None = None) -> Any:
    version = request.MAX_VERSION if version is None else version
    connection.send_raw(encoded(request, version))
    answer = connection.read_frame()
    if answer is None:
        raise Closed(type(request).__name__)
    pos = 4 + response_header_version(request.API_KEY, version)
    response, end = response_class(request.API_KEY).decode(answer, pos, version)
    if end != len(answer):
        raise ValueError(f"{len(answer) - end} bytes after the answer")
    return response


def create_topic(
    connection: RawConnection, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> int:
    """The error code."""
    entries = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name, partitions, 1, configs=entries)
    response = call(connection, CreateTopicsRequest([topic], timeout_ms=10_000))
    code: int = response.topics[0].error_code
    return code


def delete_topic(connection: RawConnection, name: str) -> int:
    response = call(connection, DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=10_000))
    code: int = response.responses[0].error_code
    return code


def metadata(connection: RawConnection, *topics: str) -> MetadataResponse:
    """Of all topics when none is named."""
    wanted = [MetadataRequestTopic(name=name) for name in topics] if topics else None
    response: MetadataResponse = call(connection, MetadataRequest(wanted, allow_auto_topic_creation=False))
    return response


def produce_request(topic: str, partition: int, *values: bytes, acks: int = -1) -> ProduceRequest:
    """For versions up to 12, which name the topic."""
    batch = bytes(build_batch([SimpleRecord(1_700_000_000_000, b"k", value) for value in values]))
    data = [PartitionProduceData(partition, batch)]
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(topic, partition_data=data)])


def produce(connection: RawConnection, topic: str, partition: int, *values: bytes) -> tuple[int, int]:
    """(error code, base offset)."""
    response = call(connection, produce_request(topic, partition, *values), 12)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def commit(connection: RawConnection, group: str, topic: str, offset: int) -> int:
    """Commit for partition 0 as a consumer without a group does; the error code."""
    found = call(connection, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
    if found.error_code:
        return int(found.error_code)
    partitions = [OffsetCommitRequestPartition(0, offset)]
    request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    code: int = call(connection, request, 9).topics[0].partitions[0].error_code
    return code


def committed(connection: RawConnection, group: str, topic: str) -> tuple[int, int]:
    """(error code, offset) of partition 0."""
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    answer = call(connection, OffsetFetchRequest(groups=[wanted]), 9).groups[0]
    if answer.error_code:
        return answer.error_code, -1
    return answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].committed_offset


def fetch(connection: RawConnection, topic: str, partition: int, offset: int = 0) -> tuple[int, bytes]:
    """(error code, batches)."""
    wanted = [FetchPartition(partition, fetch_offset=offset, partition_max_bytes=8 << 20)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=8 << 20, topics=[FetchTopic(topic, partitions=wanted)])
    answer = call(connection, request, 11).responses[0].partitions[0]
    return answer.error_code, bytes(answer.records or b"")


def read_back(connection: RawConnection, topic: str, partition: int) -> list[bytes]:
    """Every value of a partition; offsets begin at 0 and have no gaps."""
    values: list[bytes] = []
    while True:
        code, batches = fetch(connection, topic, partition, len(values))
        if code:
            raise ValueError(f"error {code}")
        before = len(values)
        for position, _ in iterate_batches(batches):
            for record in iterate_records(batches, position):
                if record.offset >= len(values):
                    if record.offset != len(values):
                        raise ValueError(f"offset {record.offset} instead of {len(values)}")
                    values.append(bytes(record.value or b""))
        if len(values) == before:
            return values
