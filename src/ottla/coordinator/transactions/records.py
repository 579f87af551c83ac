"""The records of `__transaction_state`, as Kafka 4.3 writes them.

A key is its record type (int16, always 0) and the generated key; a value its version (int16) and the generated value.
Version 0 is written up to transaction.version 0, the flexible version 1 above. An Empty id has no list of partitions at
all.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import NamedTuple

from ottla.coordinator.transactions.metadata import TransactionMetadata
from ottla.coordinator.transactions.states import TransactionState
from ottla.model.ids import TopicPartition
from ottla.protocol.generated.transaction_log_key import TransactionLogKey
from ottla.protocol.generated.transaction_log_value import PartitionsSchema, TransactionLogValue
from ottla.protocol.primitives import DecodeError

_INT16 = Struct(">h")
_KEY_TYPE = 0
_KEY_VERSION = 0
FLEXIBLE_VERSION = 1


class TransactionRecord(NamedTuple):
    transactional_id: str
    metadata: TransactionMetadata | None
    """None is a tombstone."""
    value_version: int = FLEXIBLE_VERSION


def value_version(transaction_version: int) -> int:
    """Of the value at a finalized level of transaction.version."""
    return FLEXIBLE_VERSION if transaction_version >= 1 else 0


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = _INT16.pack(_KEY_TYPE) + TransactionLogKey(record.transactional_id).to_bytes(_KEY_VERSION)
    if record.metadata is None:
        return key, None
    version = record.value_version
    return key, _INT16.pack(version) + _value(record.metadata).to_bytes(version)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None for an unknown key type; DecodeError when the bytes are not a record."""
    if len(key) < 2:
        raise DecodeError("a transaction record's key has at least two bytes")
    if _INT16.unpack_from(key)[0] != _KEY_TYPE:
        return None
    transactional_id = TransactionLogKey.decode(key, 2, _KEY_VERSION)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < 2:
        raise DecodeError("a transaction record's value has at least two bytes")
    version = _INT16.unpack_from(value)[0]
    return TransactionRecord(
        transactional_id, _metadata(transactional_id, TransactionLogValue.decode(value, 2, version)[0]), version
    )


def _value(metadata: TransactionMetadata) -> TransactionLogValue:
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        by_topic = groupby(sorted(metadata.partitions), key=lambda tp: tp.topic)
        partitions = [PartitionsSchema(topic, [tp.partition for tp in group]) for topic, group in by_topic]
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )


def _metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise DecodeError(f"unknown transaction state {value.transaction_status}") from error
    partitions = (
        TopicPartition(topic.topic, index)
        for topic in value.transaction_partitions or ()
        for index in topic.partition_ids
    )
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )
