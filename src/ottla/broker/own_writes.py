"""Batches that a node writes by itself: audit events, records for a quarantine.

The batch is appended here if this node leads the partition. Otherwise it goes to the leader over the connections between
brokers, with their credentials.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.metadata.image import TopicImage
    from ottla.protocol.generated.produce_response import ProduceResponse

_VERSION = 12
TIMEOUT_MS = 5000


async def write_batch(broker: Broker, topic: str, partition: int, data: bytes, *, acks: int) -> ErrorCode:
    """NONE when the leader, or with acks=-1 every replica in sync, has the batch. Waits no longer than TIMEOUT_MS here."""
    image: TopicImage | None = broker.image.topics_by_name.get(topic)
    registration = image.partitions.get(partition) if image is not None else None
    if image is None or registration is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not registration.has_leader:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if registration.leader == broker.node_id:
        return await _append(broker, topic, partition, data, acks)
    return await _send(
        broker, registration.leader, [TopicProduceData(topic, image.id, [PartitionProduceData(partition, data)])], acks
    )


async def _append(broker: Broker, topic: str, partition: int, data: bytes, acks: int) -> ErrorCode:
    try:
        target = broker.replicas.get(topic, partition)
        now_ms = broker.clock.time_ms()
        result = target.append_as_leader(bytearray(data), now_ms=now_ms, required_acks=acks, version=_VERSION)
    except KafkaError as error:
        return error.code
    if acks != -1:
        return ErrorCode.NONE
    committed: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    key = target.when_committed(
        result.last_offset + 1, lambda code: None if committed.done() else committed.set_result(code)
    )
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            return await committed
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    finally:
        target.unwatch(key)


async def _send(broker: Broker, leader: int, topics: list[TopicProduceData], acks: int) -> ErrorCode:
    answer: asyncio.Future[ProduceResponse | None] = asyncio.get_running_loop().create_future()
    request = ProduceRequest(None, acks, TIMEOUT_MS, topics)
    broker.peers.send(leader, request, lambda response: None if answer.done() else answer.set_result(response))
    response = await answer
    if response is None:
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode(response.responses[0].partition_responses[0].error_code)
