"""The state of share-partitions, requested from its coordinator: this node, or another broker over the wire.

The leader is looked up in the metadata at each try; the topic is made when it is not there. What may pass (no leader
yet, still loading, no connection) is tried again for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.topics.internal_topics import create_topic, share_state_topic
from ottla.coordinator.decisions import Waiter
from ottla.coordinator.share.machine import ShareDecision, ShareStateMachine
from ottla.coordinator.share.records import SharePartitionKey
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.protocol.generated import delete_share_group_state_request as delete
from ottla.protocol.generated import initialize_share_group_state_request as initialize
from ottla.protocol.generated import read_share_group_state_request as read
from ottla.protocol.generated import read_share_group_state_summary_request as summary
from ottla.protocol.generated import write_share_group_state_request as write

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.protocol.generated.delete_share_group_state_response import DeleteShareGroupStateResponse
    from ottla.protocol.generated.initialize_share_group_state_response import InitializeShareGroupStateResponse
    from ottla.protocol.generated.read_share_group_state_response import ReadShareGroupStateResponse
    from ottla.protocol.generated.read_share_group_state_summary_response import ReadShareGroupStateSummaryResponse
    from ottla.protocol.generated.write_share_group_state_response import WriteShareGroupStateResponse
    from ottla.protocol.primitives import Message, Struct

log = get_logger(__name__)

_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 2_000
_TRIES = 12
"""Fifteen seconds: long enough for a broker to be declared dead and its partitions led by another."""


ShareGroupStateResponse: TypeAlias = (
    "InitializeShareGroupStateResponse | ReadShareGroupStateResponse | WriteShareGroupStateResponse"
    " | DeleteShareGroupStateResponse | ReadShareGroupStateSummaryResponse"
)


class _Question(NamedTuple):
    key: SharePartitionKey
    local: Callable[[ShareStateMachine, Waiter], ShareDecision]
    request: Message
    waiter: Waiter
    tries: int = 0


class BrokerSharePersister:
    def __init__(self, broker: SharePlane, coordinator: ShareCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._creating: asyncio.Task[None] | None = None

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, waiter: Waiter) -> None:
        row = initialize.PartitionData(key.partition, state_epoch, start_offset)
        topics = [initialize.InitializeStateData(key.topic_id, [row])]
        self._ask(
            _Question(
                key,
                lambda machine, answer: machine.initialize(key, state_epoch, start_offset, answer),
                initialize.InitializeShareGroupStateRequest(key.group_id, topics),
                waiter,
            )
        )

    def read(self, key: SharePartitionKey, leader_epoch: int, waiter: Waiter) -> None:
        topics = [read.ReadStateData(key.topic_id, [read.PartitionData(key.partition, leader_epoch)])]
        self._ask(
            _Question(
                key,
                lambda machine, answer: machine.read(key, leader_epoch, answer),
                read.ReadShareGroupStateRequest(key.group_id, topics),
                waiter,
            )
        )

    def write(self, key: SharePartitionKey, data: write.PartitionData, waiter: Waiter) -> None:
        topics = [write.WriteStateData(key.topic_id, [data])]
        self._ask(
            _Question(
                key,
                lambda machine, answer: machine.write(key, data, answer),
                write.WriteShareGroupStateRequest(key.group_id, topics),
                waiter,
            )
        )

    def summary(self, key: SharePartitionKey, waiter: Waiter) -> None:
        topics = [summary.ReadStateSummaryData(key.topic_id, [summary.PartitionData(key.partition, -1)])]
        self._ask(
            _Question(
                key,
                lambda machine, answer: machine.summary(key, answer),
                summary.ReadShareGroupStateSummaryRequest(key.group_id, topics),
                waiter,
            )
        )

    def delete(self, key: SharePartitionKey, waiter: Waiter) -> None:
        topics = [delete.DeleteStateData(key.topic_id, [delete.PartitionData(key.partition)])]
        self._ask(
            _Question(
                key,
                lambda machine, answer: machine.delete(key, answer),
                delete.DeleteShareGroupStateRequest(key.group_id, topics),
                waiter,
            )
        )

    # Tries

    def _ask(self, question: _Question) -> None:
        answered = partial(self._answered, question)
        image = self._broker.image
        if SHARE_GROUP_STATE_TOPIC not in image.topics_by_name:
            self._create_topic()
            answered(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        index = self._coordinator.partition_for(str(question.key))
        registration = image.partition(SHARE_GROUP_STATE_TOPIC, index)
        leader = -1 if registration is None else registration.leader
        if leader == self._broker.node_id:
            self._coordinator.run(question.key, lambda machine: question.local(machine, answered), answered)
        elif leader >= 0:
            self._broker.peers.send(leader, question.request, lambda response: answered(_only_result(response)))
        else:
            answered(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _answered(self, question: _Question, answer: object) -> None:
        passing = isinstance(answer, KafkaError) and answer.code in _PASSING
        if not passing or question.tries + 1 >= _TRIES:
            question.waiter(answer)
            return
        pause_ms = min(_FIRST_PAUSE_MS << question.tries, _LONGEST_PAUSE_MS)
        again = question._replace(tries=question.tries + 1)
        self._broker.timers.call_later(pause_ms, partial(self._ask, again))

    def _create_topic(self) -> None:
        if self._creating is None or self._creating.done():
            self._creating = asyncio.ensure_future(self._try_to_create())

    async def _try_to_create(self) -> None:
        topic = share_state_topic(self._coordinator.settings)
        try:
            await create_topic(self._broker, self._coordinator.shards, topic)
        except KafkaError as error:
            log.warning("topic.not_created", topic=SHARE_GROUP_STATE_TOPIC, reason=error.message)


def _only_result(response: ShareGroupStateResponse | None) -> Struct | KafkaError:
    """The row of a response about one share-partition, or its error."""
    if response is None:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION)
    for topic in response.results:
        for row in topic.partitions:
            return KafkaError(ErrorCode(row.error_code), row.error_message) if row.error_code else row
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator did not answer for the partition")
