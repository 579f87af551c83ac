"""Reading the log for a share-partition: the record batches at an offset, and which of them were aborted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.share.in_flight import Acquired, OffsetSpan
from ottla.protocol.records_header import BatchHeader, iterate_batches
from ottla.protocol.records_walk import iterate_records
from ottla.replication.partition import READ_COMMITTED

if TYPE_CHECKING:
    from ottla.log.results import LogSlice
    from ottla.log.transaction_index import AbortedTxn
    from ottla.replication.partition import Partition

_ABORT = 0


class Batch(NamedTuple):
    position: int
    header: BatchHeader


class ReadBatches(NamedTuple):
    data: bytes
    batches: list[Batch]
    aborted: list[OffsetSpan]
    """Record batches of aborted transactions: read_committed readers do not get them."""

    @property
    def spans(self) -> list[OffsetSpan]:
        return [OffsetSpan(batch.header.base_offset, batch.header.last_offset) for batch in self.batches]

    def slice_for(self, acquired: Sequence[Acquired]) -> bytes:
        """The bytes of the batches from the first to the last that something was acquired of."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        covering = [b for b in self.batches if b.header.last_offset >= first and b.header.base_offset <= last]
        if not covering or len(covering) == len(self.batches):
            return self.data
        end = covering[-1].position + covering[-1].header.size
        return self.data[covering[0].position : end]


def read_batches(
    partition: Partition, log_slice: LogSlice, offset: int, isolation_level: int, max_batches: int
) -> ReadBatches:
    """What `log_slice` at `offset` holds, up to so many batches."""
    try:
        data = log_slice.read()
    except OSError as error:
        raise partition.log.log_dir.storage_error(error) from error
    batches = [Batch(position, header) for position, header in islice(iterate_batches(data), max_batches)]
    if len(batches) == max_batches:
        data = data[: batches[-1].position + batches[-1].header.size]
    aborted: list[OffsetSpan] = []
    if isolation_level == READ_COMMITTED:
        aborted = _aborted(data, batches, partition.log.aborted.within(log_slice, offset))
    return ReadBatches(data, batches, aborted)


def _aborted(data: bytes, batches: list[Batch], transactions: Sequence[AbortedTxn]) -> list[OffsetSpan]:
    """As a consumer finds them: a transaction counts as aborted from its first offset up to its marker."""
    waiting = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
    open_aborts: set[int] = set()
    aborted = []
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_aborts.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in open_aborts and _is_abort_marker(data, position):
                open_aborts.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_aborts:
            aborted.append(OffsetSpan(header.base_offset, header.last_offset))
    return aborted


def _is_abort_marker(data: bytes, position: int) -> bool:
    """A control record's key is a version and a type, two int16."""
    for record in iterate_records(data, position):
        return record.key is not None and len(record.key) >= 4 and record.key[3] == _ABORT
    return False
