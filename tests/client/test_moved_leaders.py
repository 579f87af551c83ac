"""Leaders that moved, or whose topic was just made, are asked anew, as Kafka's admin client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.cluster import Cluster
from ottla.client.offsets import FoundOffset, delete_records, list_offsets
from ottla.client.settings import client_settings
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.generated.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.generated.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.offset_timestamps import LATEST
from tests.cli.fake_broker import FakeBroker

LIST_OFFSETS, DELETE_RECORDS = 2, 21


def leading(api: int, answer: Callable[[Any], Any]) -> FakeBroker:
    """One that leads three partitions of topic t and answers this API so."""
    rows = [MetadataResponsePartition(0, index, 1, 0, [1], [1]) for index in range(3)]
    told = MetadataResponse(topics=[MetadataResponseTopic(0, "t", partitions=rows)])
    return FakeBroker({3: lambda _: told, api: answer})


def test_only_what_moved_is_deleted_again() -> None:
    asked: list[list[int]] = []

    def answer(request: Any) -> DeleteRecordsResponse:
        (topic,) = request.topics
        asked.append([row.partition_index for row in topic.partitions])
        codes = {0: 0, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER if len(asked) < 3 else 0, 2: ErrorCode.OFFSET_OUT_OF_RANGE}
        rows = [DeleteRecordsPartitionResult(index, 7, codes[index]) for index in asked[-1]]
        return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult("t", rows)])

    with (
        leading(DELETE_RECORDS, answer) as broker,
        Cluster(client_settings(broker.address, {"retry.backoff.ms": "10"})) as cluster,
    ):
        found = delete_records(cluster, {("t", index): -1 for index in range(3)})
    refused = found.pop(("t", 2))
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert found == {("t", 0): 7, ("t", 1): 7}
    assert asked == [[0, 1, 2], [1], [1]]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(code: ErrorCode) -> None:
    asked: list[Any] = []

    def answer(request: Any) -> ListOffsetsResponse:
        asked.append(request)
        early = ListOffsetsPartitionResponse(0, code)
        known = ListOffsetsPartitionResponse(0, 0, -1, 9, 4)
        return ListOffsetsResponse(0, [ListOffsetsTopicResponse("t", [early if len(asked) < 3 else known])])

    with (
        leading(LIST_OFFSETS, answer) as broker,
        Cluster(client_settings(broker.address, {"retry.backoff.ms": "10"})) as cluster,
    ):
        assert list_offsets(cluster, {("t", 0): LATEST}) == {("t", 0): FoundOffset(9, -1, 4)}
    assert len(asked) == 3
