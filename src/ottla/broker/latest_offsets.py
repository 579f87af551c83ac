"""A partition's high watermark, wherever it is led."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.offset_timestamps import LATEST

if TYPE_CHECKING:
    from ottla.broker.planes import SharePlane
    from ottla.protocol.generated.list_offsets_response import ListOffsetsResponse

_CONSUMER = -1


def latest_offset(broker: SharePlane, topic: str, index: int, done: Callable[[int | KafkaError], None]) -> None:
    registration = broker.image.partition(topic, index)
    if registration is None:
        done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    elif registration.leader == broker.node_id:
        try:
            done(broker.replicas.get(topic, index).high_watermark)
        except KafkaError as error:
            done(error)
    elif registration.leader < 0:
        done(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
    else:
        row = ListOffsetsPartition(index, NO_LEADER_EPOCH, LATEST)
        request = ListOffsetsRequest(_CONSUMER, 0, [ListOffsetsTopic(topic, [row])])
        broker.peers.send(registration.leader, request, lambda response: done(_offset(response)))


def _offset(response: ListOffsetsResponse | None) -> int | KafkaError:
    if response is None:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION)
    row = response.topics[0].partitions[0]
    return KafkaError(ErrorCode(row.error_code)) if row.error_code else row.offset
