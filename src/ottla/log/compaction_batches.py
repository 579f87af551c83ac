"""One batch of a log under compaction: what stays of it, as bytes.

Offsets, last offset delta, producer, epoch and sequence of a batch never change. A batch that loses no records is
copied unchanged; a batch that loses records keeps the bytes of the other records. The first pass over a batch with
tombstones, or over the marker of a transaction without batches, sets a delete horizon (now + delete.retention.ms). The
first pass after that time removes the tombstones or the marker (KIP-534). A producer's last batch stays even when it is
empty, so that the producer's sequence survives. The last batch of the round stays too, so that the end offset survives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.compaction_keys import LONGEST_PLAIN_KEY, OffsetMap, stand_in
from ottla.log.compaction_transactions import CleanedTransactions
from ottla.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, time_after
from ottla.protocol.records import (
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME,
    BatchHeader,
    RecordSpan,
    assemble_batch,
    batch_payload,
    check_filled,
    empty_batch,
    encode_record,
    next_spans,
    parse_control_key,
    record_at,
)

STEP_RECORDS = 500
"""Walk this many records before the caller may breathe: a third of a millisecond."""


class LastBatch(NamedTuple):
    """Where a producer's last batch is; `offset` -1 when only a marker is left of it."""

    offset: Offset
    epoch: ProducerEpoch


class BatchRules(NamedTuple):
    """The inputs of a pass that exist before it reads the first batch."""

    offset_map: OffsetMap
    transactions: CleanedTransactions
    last_batches: dict[ProducerId, LastBatch]
    end_of_round: Offset
    now_ms: TimestampMs
    delete_retention_ms: int


def control_type_of(batch: bytes, header: BatchHeader) -> int | None:
    """The type of the one record of a control batch; None when compaction emptied it."""
    if header.record_count == 0:
        return None
    payload = batch_payload(batch, 0, header)
    return parse_control_key(record_at(payload, 0)[2])[1]


def steps_of_spans(payload: bytes, header: BatchHeader) -> Iterator[list[RecordSpan]]:
    """The records of a batch, a bounded number at a time."""
    pos = 0
    for start in range(0, header.record_count, STEP_RECORDS):
        spans, pos = next_spans(payload, pos, min(STEP_RECORDS, header.record_count - start))
        yield spans
    check_filled(payload, pos, header.record_count)


def filter_batch(batch: bytes, header: BatchHeader, rules: BatchRules) -> Iterator[bytes | bytearray | None]:
    """What stays of `batch`, given last; None comes before it wherever the caller may breathe. b"" is nothing."""
    if header.is_control:
        yield _filter_control(batch, header, rules)
        return
    keeps_empty = _keeps_empty(header, rules)
    if rules.transactions.on_batch(header) or header.record_count == 0:
        yield empty_batch(header) if keeps_empty else b""
        return
    payload = bytes(batch_payload(batch, 0, header))
    kept: list[RecordSpan] = []
    for spans in steps_of_spans(payload, header):
        kept += _retained(payload, spans, header, rules)
        yield None
    if not kept:
        yield empty_batch(header) if keeps_empty else b""
        return
    tombstones = any(span[6] for span in kept)
    if tombstones and not header.has_delete_horizon:
        yield _with_horizon(payload, kept, header, time_after(rules.now_ms, rules.delete_retention_ms))
    elif len(kept) == header.record_count:
        yield batch
    else:
        pieces = b"".join([payload[span[0] : span[1]] for span in kept])
        yield _rebuilt(pieces, kept, header, header.base_timestamp, header.attributes)


def _filter_control(batch: bytes, header: BatchHeader, rules: BatchRules) -> bytes | bytearray:
    unneeded = rules.transactions.on_control_batch(header, control_type_of(batch, header))
    horizon = header.delete_horizon_ms
    if header.record_count == 0 or (unneeded and horizon is not None and horizon <= rules.now_ms):
        return empty_batch(header) if _keeps_empty(header, rules) else b""
    if unneeded and horizon is None:
        payload = bytes(batch_payload(batch, 0, header))
        spans, _ = next_spans(payload, 0, header.record_count)
        return _with_horizon(payload, spans, header, time_after(rules.now_ms, rules.delete_retention_ms))
    return batch


def _keeps_empty(header: BatchHeader, rules: BatchRules) -> bool:
    if header.next_offset == rules.end_of_round:
        return True
    last = rules.last_batches.get(header.producer_id)
    if last is None:
        return False
    if last.offset >= 0:
        return header.last_offset == last.offset
    return header.is_control and header.producer_epoch == last.epoch


def _retained(payload: bytes, spans: list[RecordSpan], header: BatchHeader, rules: BatchRules) -> list[RecordSpan]:
    """The records that are the latest of their key, and are no tombstone whose time has come."""
    base_offset = header.base_offset
    offset_map = rules.offset_map
    latest = offset_map.offsets.get
    mapped_to = offset_map.latest_offset - base_offset
    horizon = header.delete_horizon_ms
    drop_tombstones = horizon is not None and rules.now_ms >= horizon
    kept = []
    for span in spans:
        _, _, delta, _, key_start, key_end, tombstone = span
        if delta <= mapped_to:
            if key_start < 0 or (tombstone and drop_tombstones):
                continue
            key = payload[key_start:key_end]
            if key_end - key_start > LONGEST_PLAIN_KEY:
                key = stand_in(key)
            if base_offset + delta < latest(key, -1):
                continue
        kept.append(span)
    return kept


def _with_horizon(payload: bytes, kept: list[RecordSpan], header: BatchHeader, horizon: TimestampMs) -> bytearray:
    """The batch with a delete horizon: the horizon becomes the base timestamp, so every timestamp delta is written
    again.
    """
    out = bytearray()
    for span in kept:
        timestamp_delta, offset_delta, key, value, headers, _ = record_at(payload, span[0])
        encode_record(out, offset_delta, header.base_timestamp + timestamp_delta - horizon, key, value, headers)
    return _rebuilt(out, kept, header, horizon, header.attributes | DELETE_HORIZON_MASK)


def _rebuilt(
    payload: bytes | bytearray,
    kept: list[RecordSpan],
    header: BatchHeader,
    base_timestamp: TimestampMs,
    attributes: int,
) -> bytearray:
    max_timestamp = header.max_timestamp
    if header.timestamp_type != LOG_APPEND_TIME:
        max_timestamp = header.base_timestamp + max(span[3] for span in kept)
    return assemble_batch(
        payload,
        len(kept),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
