"""Answers that carry an injected error, for the APIs whose error code stands in each partition, group or key."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from ottla.broker.authorization.refusals import refuse
from ottla.model.errors import ErrorCode
from ottla.protocol.api import response_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.protocol.generated.fetch_request import FetchRequest
    from ottla.protocol.generated.fetch_response import FetchResponse
    from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
    from ottla.protocol.generated.find_coordinator_response import FindCoordinatorResponse
    from ottla.protocol.generated.list_offsets_request import ListOffsetsRequest
    from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse
    from ottla.protocol.generated.metadata_response import MetadataResponse
    from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequest
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse
    from ottla.protocol.generated.produce_request import ProduceRequest
    from ottla.protocol.generated.produce_response import ProduceResponse


def can_answer(api_key: ApiKey) -> bool:
    """Whether an error can be injected into the API."""
    response = response_class(api_key)()
    return (
        api_key in _IN_PARTS or api_key == ApiKey.METADATA or hasattr(response, "error_code") or api_key in _BY_REFUSAL
    )


def with_error(answer: MetadataResponse, code: ErrorCode) -> MetadataResponse:
    """The brokers of the answer, and each of its topics with `code`: a client without brokers could not ask again."""
    from ottla.protocol.generated.metadata_response import MetadataResponseTopic

    copied = copy(answer)  # the node may answer others with the same object
    copied.topics = [
        MetadataResponseTopic(int(code), topic.name, topic.topic_id, topic.is_internal) for topic in answer.topics
    ]
    return copied


def error_answer(request: Message, code: ErrorCode) -> Any:
    """The response to `request` with `code` wherever an error code stands."""
    in_parts = _IN_PARTS.get(ApiKey(request.API_KEY))
    return refuse(request, code) if in_parts is None else in_parts(request, int(code))


def _produce(request: ProduceRequest, code: int) -> ProduceResponse:
    from ottla.protocol.generated.produce_response import (
        PartitionProduceResponse,
        ProduceResponse,
        TopicProduceResponse,
    )

    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(_request: FetchRequest, code: int) -> FetchResponse:
    """At the top: in a fetch session the request does not name its partitions."""
    from ottla.protocol.generated.fetch_response import FetchResponse

    return FetchResponse(error_code=code)


def _list_offsets(request: ListOffsetsRequest, code: int) -> ListOffsetsResponse:
    from ottla.protocol.generated.list_offsets_response import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
        ListOffsetsTopicResponse,
    )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name, [ListOffsetsPartitionResponse(row.partition_index, code) for row in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
    from ottla.protocol.generated.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup

    groups = [OffsetFetchResponseGroup(group.group_id, error_code=code) for group in request.groups]
    return OffsetFetchResponse(error_code=code, groups=groups)


def _find_coordinator(request: FindCoordinatorRequest, code: int) -> FindCoordinatorResponse:
    from ottla.protocol.generated.find_coordinator_response import Coordinator, FindCoordinatorResponse

    coordinators = [Coordinator(key, -1, "", -1, code) for key in request.coordinator_keys]
    return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1, coordinators=coordinators)


_IN_PARTS: dict[ApiKey, Callable[[Any, int], Message]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
}
_BY_REFUSAL = {
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
}
