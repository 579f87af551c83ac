"""The five requests about share-partitions' state (83 to 87), which leaders and group coordinators send.

A request for several share-partitions is an event for each; an answer stands for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.coordinator.decisions import Waiter
from ottla.coordinator.share.machine import ShareDecision, ShareStateMachine
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import paced
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated import delete_share_group_state_response as delete
from ottla.protocol.generated import initialize_share_group_state_response as initialize
from ottla.protocol.generated import read_share_group_state_response as read
from ottla.protocol.generated import read_share_group_state_summary_response as summary
from ottla.protocol.generated import write_share_group_state_response as write

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.protocol.generated import delete_share_group_state_request as to_delete
    from ottla.protocol.generated import initialize_share_group_state_request as to_initialize
    from ottla.protocol.generated import read_share_group_state_request as to_read
    from ottla.protocol.generated import read_share_group_state_summary_request as to_summarize
    from ottla.protocol.generated import write_share_group_state_request as to_write
    from ottla.protocol.primitives import Message, Struct

ShareGroupStateRequest: TypeAlias = (
    "to_initialize.InitializeShareGroupStateRequest | to_read.ReadShareGroupStateRequest"
    " | to_write.WriteShareGroupStateRequest | to_delete.DeleteShareGroupStateRequest"
    " | to_summarize.ReadShareGroupStateSummaryRequest"
)


class Row(Protocol):
    """The part of a request about one share-partition."""

    partition: int


class TopicRows(Protocol):
    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Collection[Row]: ...


class _Kind(NamedTuple):
    operation: Callable[[ShareStateMachine, SharePartitionKey, Any, Waiter], ShareDecision]
    response: Callable[..., Message]
    topic_result: Callable[[Uuid, list[Any]], Struct]
    partition_result: Callable[..., Struct]
    verb: str


_KINDS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.initialize(key, row.state_epoch, row.start_offset, waiter),
        initialize.InitializeShareGroupStateResponse,
        initialize.InitializeStateResult,
        initialize.PartitionResult,
        "initialize share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.read(key, row.leader_epoch, waiter),
        read.ReadShareGroupStateResponse,
        read.ReadStateResult,
        read.PartitionResult,
        "read share group state",
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.write(key, row, waiter),
        write.WriteShareGroupStateResponse,
        write.WriteStateResult,
        write.PartitionResult,
        "write share group state",
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, _row, waiter: machine.delete(key, waiter),
        delete.DeleteShareGroupStateResponse,
        delete.DeleteStateResult,
        delete.PartitionResult,
        "delete share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _Kind(
        lambda machine, key, _row, waiter: machine.summary(key, waiter),
        summary.ReadShareGroupStateSummaryResponse,
        summary.ReadStateSummaryResult,
        summary.PartitionResult,
        "read share group state summary",
    ),
}
_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def handle(context: RequestContext[SharePlane], request: ShareGroupStateRequest) -> Message | Deferred[Message]:
    kind = _KINDS[ApiKey(request.API_KEY)]
    topics: Collection[TopicRows] = request.topics
    if not request.group_id or not topics or not all(topic.partitions for topic in paced(topics)):
        return kind.response(results=[])
    places = [(topic.topic_id, row) for topic in paced(topics) for row in paced(topic.partitions)]
    coordinator = context.broker.shares.coordinator

    def start(topic_id: Uuid, row: Row, waiter: Waiter) -> None:
        key = SharePartitionKey(request.group_id, topic_id, row.partition)
        coordinator.run(key, lambda machine: kind.operation(machine, key, row, waiter), waiter)

    def finish(answers: list[Struct | KafkaError | None]) -> Message:
        rows_of: dict[Uuid, list[Struct]] = {}
        for (topic_id, row), answer in zip(paced(places), answers, strict=True):
            rows_of.setdefault(topic_id, []).append(_result(kind, row.partition, answer))
        return kind.response(results=[kind.topic_result(topic_id, rows) for topic_id, rows in paced(rows_of.items())])

    return ask_all([partial(start, *place) for place in paced(places)], finish)


def _result(kind: _Kind, partition: int, answer: Struct | KafkaError | None) -> Struct:
    if isinstance(answer, KafkaError):
        message = answer.message
        if answer.code in _COORDINATOR_ERRORS:
            message = f"Unable to {kind.verb}: {message}"
        return kind.partition_result(partition, answer.code, message)
    return kind.partition_result(partition) if answer is None else answer
