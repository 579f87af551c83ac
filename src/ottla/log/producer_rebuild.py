"""Producer state from what is on disk: the newest usable snapshot, then the batches after it.

Batches here were accepted once, so nothing is refused; a marker that ends no known transaction is simply noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.log.damaged_segment import headers_over_damage
from ottla.log.file_names import LOG_SUFFIX
from ottla.log.producer_snapshots import CorruptSnapshotError, ProducerSnapshots
from ottla.log.producer_state import CompletedTxn, ProducerState, is_expired
from ottla.log.segment import Segment
from ottla.model.errors import KafkaError
from ottla.model.ids import Offset, TimestampMs
from ottla.protocol.records import EndTxnMarker, iterate_records, parse_end_txn_marker
from ottla.protocol.records_header import CONTROL_MASK, BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = get_logger(__name__)


def marker_of(buf: Buffer, position: int) -> tuple[EndTxnMarker | None, TimestampMs]:
    """The transaction marker in a control batch and its timestamp; None for other or emptied control batches."""
    for record in iterate_records(buf, position):
        return parse_end_txn_marker(record), record.timestamp
    return None, -1


def end_transaction(
    state: ProducerState, header: BatchHeader, buf: Buffer, position: int, offset: Offset
) -> CompletedTxn | None:
    """Note the marker of a control batch that stands in the log at `offset`.

    One that cannot be read was written by a leader that could: it is passed over rather than stopping the replica.
    """
    try:
        marker, timestamp = marker_of(buf, position)
    except KafkaError as error:
        _log.warning("marker.not_read", offset=offset, error=error.message)
        return None
    return state.update_marker(header, marker, offset, timestamp) if marker is not None else None


def replay_batch(state: ProducerState, header: BatchHeader, buf: Buffer, position: int) -> CompletedTxn | None:
    """Note a batch that stands in the log; the transaction that it ended, already closed in `state`."""
    completed = None
    if header.producer_id >= 0:
        if header.attributes & CONTROL_MASK:
            completed = end_transaction(state, header, buf, position, header.base_offset)
        else:
            state.update(header, header.base_offset)
    state.end_offset = header.base_offset + header.last_offset_delta + 1
    return completed


def load_snapshot(
    snapshots: ProducerSnapshots, log_start_offset: Offset, up_to: Offset, now_ms: TimestampMs, expiration_ms: int
) -> ProducerState:
    """The state of the newest snapshot at or below `up_to`; damaged ones are removed on the way."""
    for offset in reversed(list(snapshots.offsets)):
        if offset > up_to or offset < log_start_offset:
            continue
        try:
            entries = snapshots.read(offset)
        except (CorruptSnapshotError, FileNotFoundError) as error:
            _log.warning("snapshot.rejected", path=snapshots.path(offset), error=str(error))
            snapshots.remove(offset)
            continue
        state = ProducerState(offset, expiration_ms)
        for producer_id, entry in entries.items():
            if not is_expired(entry, now_ms, expiration_ms):
                state.load(producer_id, entry)
        state.sort_ongoing()
        return state
    return ProducerState(log_start_offset, expiration_ms)


def rebuild_producer_state(
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    log_start_offset: Offset,
    up_to: Offset,
    now_ms: TimestampMs,
    expiration_ms: int,
) -> ProducerState:
    """The state at `up_to`, which is the end of the segments' batches or a batch boundary before it."""
    state = load_snapshot(snapshots, log_start_offset, up_to, now_ms, expiration_ms)
    replay_segments(state, segments, up_to)
    state.end_offset = up_to
    return state


def _start_of(segment: Segment, offset: Offset) -> int | None:
    try:
        return segment.position_of(offset)
    except KafkaError as error:
        _log.warning("segment.damaged", path=segment.path(LOG_SUFFIX), error=error.message)
        return 0


def replay_segments(state: ProducerState, segments: Sequence[Segment], up_to: Offset) -> None:
    """Note every batch from the state's end offset to `up_to`."""
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else up_to
        if segment.base_offset >= up_to or following <= state.end_offset or segment.size == 0:
            continue
        start = _start_of(segment, state.end_offset)
        if start is None:
            continue
        for position, header in headers_over_damage(segment, start):
            if header.base_offset >= up_to:
                break
            if header.base_offset < state.end_offset:
                continue
            control = header.producer_id >= 0 and header.attributes & CONTROL_MASK
            buf = segment.file.pread(header.size, position) if control else b""
            completed = replay_batch(state, header, buf, 0)
            if completed is not None:
                state.complete(completed)
