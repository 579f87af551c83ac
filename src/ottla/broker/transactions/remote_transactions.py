"""Between a transaction's coordinator and the leaders of its partitions on other brokers: the two requests and each
partition's code in the answers. Without an answer, every partition gets NETWORK_EXCEPTION, and the caller retries.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.runtime import EndOfTransaction
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.generated.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.generated.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.protocol.generated.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.generated.write_txn_markers_response import WriteTxnMarkersResponse

Codes = dict[TopicPartition, ErrorCode]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def markers_request(end: EndOfTransaction, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction_result=end.committed,
        topics=[WritableTxnMarkerTopic(topic, indexes) for topic, indexes in _by_topic(partitions).items()],
        coordinator_epoch=end.coordinator_epoch,
        transaction_version=end.transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def markers_codes(partitions: Iterable[TopicPartition], response: WriteTxnMarkersResponse | None) -> Codes:
    codes = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    if response is not None:
        for marker in response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.name, partition.partition_index)
                    if tp in codes:
                        codes[tp] = ErrorCode(partition.error_code)
    return codes


def add_partitions_request(
    transactional_id: str,
    producer: tuple[ProducerId, ProducerEpoch],
    partitions: Iterable[TopicPartition],
    *,
    verify_only: bool,
) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in _by_topic(partitions).items()]
    transaction = AddPartitionsToTxnTransaction(transactional_id, *producer, verify_only, topics)
    return AddPartitionsToTxnRequest(transactions=[transaction])


def add_partitions_codes(response: AddPartitionsToTxnResponse | None) -> Codes | KafkaError:
    if response is None:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION)
    if response.error_code:
        return KafkaError(ErrorCode(response.error_code))
    return {
        TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }
