"""WriteTxnMarkers: a coordinator (or an administrator who ends a hanging transaction) has markers written here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.broker.transactions.transaction_markers import write_locally
from ottla.coordinator.runtime import EndOfTransaction
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.pace import paced
from ottla.protocol.generated.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.protocol.generated.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.planes import TransactionPlane

_PART = 50


def handle(
    context: RequestContext[TransactionPlane], request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
    if any(_cannot_be_built(context, marker) for marker in paced(request.markers)):
        return _refuse_all(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    work = _Work(sum(len(_partitions(marker)) for marker in paced(request.markers)))
    for marker in paced(request.markers, 10):
        codes = work.codes.setdefault(marker.producer_id, {})
        end = EndOfTransaction(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        for part in paced(_parts(_partitions(marker)), 20 * _PART):
            write_locally(context.broker, end, part, work.taker(codes))
    return work.answer()


def _partitions(marker: WritableTxnMarker) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, index) for topic in paced(marker.topics) for index in paced(topic.partition_indexes)
    }


def _parts(partitions: set[TopicPartition]) -> list[set[TopicPartition]]:
    """In parts that are written in one go."""
    ordered = sorted(partitions)
    return [set(ordered[at : at + _PART]) for at in range(0, len(ordered), _PART)]


def _cannot_be_built(context: RequestContext[TransactionPlane], marker: WritableTxnMarker) -> bool:
    """A marker without a producer, when it is for a partition that is here."""
    if marker.producer_id != NO_PRODUCER_ID and marker.producer_epoch != NO_PRODUCER_EPOCH:
        return False
    replicas = context.broker.replicas.by_name
    return any(partition in replicas.get(topic, ()) for topic, partition in paced(_partitions(marker)))


def _refuse_all(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """A marker that no batch can carry: Kafka gives up on the whole request."""
    return WriteTxnMarkersResponse(
        [_result(marker.producer_id, dict.fromkeys(_partitions(marker), code)) for marker in paced(request.markers)]
    )


class _Work:
    """Codes of all markers, by producer, as they come in."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._deferred: Deferred[WriteTxnMarkersResponse] | None = None
        self.codes: dict[ProducerId, dict[TopicPartition, ErrorCode]] = {}

    def taker(self, codes: dict[TopicPartition, ErrorCode]) -> _Taker:
        return _Taker(self, codes)

    def done(self, count: int) -> None:
        self._missing -= count
        if self._missing == 0 and self._deferred is not None:
            self._deferred.resolve(self._response())

    def answer(self) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
        if self._missing == 0:
            return self._response()
        self._deferred = Deferred()
        return self._deferred

    def _response(self) -> WriteTxnMarkersResponse:
        """The response leaves out a producer whose marker is for no partition."""
        results = [_result(producer_id, codes) for producer_id, codes in paced(self.codes.items()) if codes]
        return WriteTxnMarkersResponse(results)


class _Taker:
    """The callback for one marker."""

    def __init__(self, work: _Work, codes: dict[TopicPartition, ErrorCode]) -> None:
        self._work = work
        self._codes = codes

    def __call__(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        self._codes.update(codes)
        self._work.done(len(codes))


def _result(producer_id: ProducerId, codes: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for tp, code in paced(sorted(codes.items()), 2):
        topic = topics.setdefault(tp.topic, WritableTxnMarkerTopicResult(tp.topic))
        topic.partitions.append(WritableTxnMarkerPartitionResult(tp.partition, int(code)))
    return WritableTxnMarkerResult(producer_id, list(topics.values()))
