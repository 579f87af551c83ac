"""The five requests about share-partitions' state (83 to 87), which leaders and group coordinators send.

A request for several share-partitions is an event for each; an answer stands for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.group_replies import ask_all
from ottla.coordinator.decisions import Waiter
from ottla.coordinator.share.machine import ShareDecision, ShareStateMachine
from ottla.coordinator.share.records import SharePartitionKey
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.pace import paced
from ottla.protocol.api import response_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated import delete_share_group_state_response as delete
from ottla.protocol.generated import initialize_share_group_state_response as initialize
from ottla.protocol.generated import read_share_group_state_response as read
from ottla.protocol.generated import read_share_group_state_summary_response as summary
from ottla.protocol.generated import write_share_group_state_response as write

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane


class _Kind(NamedTuple):
    operation: Callable[[ShareStateMachine, SharePartitionKey, Any, Waiter], ShareDecision]
    topic_result: Callable[[Any, list[Any]], Any]
    partition_result: Callable[..., Any]
    verb: str


_KINDS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.initialize(key, row.state_epoch, row.start_offset, waiter),
        initialize.InitializeStateResult,
        initialize.PartitionResult,
        "initialize share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.read(key, row.leader_epoch, waiter),
        read.ReadStateResult,
        read.PartitionResult,
        "read share group state",
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, row, waiter: machine.write(key, row, waiter),
        write.WriteStateResult,
        write.PartitionResult,
        "write share group state",
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: _Kind(
        lambda machine, key, _row, waiter: machine.delete(key, waiter),
        delete.DeleteStateResult,
        delete.PartitionResult,
        "delete share group state",
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _Kind(
        lambda machine, key, _row, waiter: machine.summary(key, waiter),
        summary.ReadStateSummaryResult,
        summary.PartitionResult,
        "read share group state summary",
    ),
}
_COORDINATOR_ERRORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


def handle(context: RequestContext[SharePlane], request: Any) -> Any | Deferred[Any]:
    kind = _KINDS[ApiKey(request.API_KEY)]
    response: Any = response_class(request.API_KEY)
    if not request.group_id or not request.topics or not all(topic.partitions for topic in paced(request.topics)):
        return response(results=[])
    places = [(topic.topic_id, row) for topic in paced(request.topics) for row in paced(topic.partitions)]
    coordinator = context.broker.shares.coordinator

    def start(topic_id: Any, row: Any, waiter: Waiter) -> None:
        key = SharePartitionKey(request.group_id, topic_id, row.partition)
        coordinator.run(key, lambda machine: kind.operation(machine, key, row, waiter), waiter)

    def finish(answers: list[Any]) -> Any:
        topics: dict[Any, list[Any]] = {}
        for (topic_id, row), answer in zip(paced(places), answers, strict=True):
            topics.setdefault(topic_id, []).append(_result(kind, row.partition, answer))
        return response(results=[kind.topic_result(topic_id, rows) for topic_id, rows in paced(topics.items())])

    return ask_all([partial(start, *place) for place in paced(places)], finish)


def _result(kind: _Kind, partition: int, answer: Any) -> Any:
    if isinstance(answer, KafkaError):
        message = answer.message
        if answer.code in _COORDINATOR_ERRORS:
            message = f"Unable to {kind.verb}: {message}"
        return kind.partition_result(partition, answer.code, message)
    return kind.partition_result(partition) if answer is None else answer
