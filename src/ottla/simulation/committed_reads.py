"""What a consumer with `read_committed` returns of a fetch response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.model.ids import Offset
from ottla.protocol.generated.fetch_response import PartitionData
from ottla.protocol.records import ControlType, Record, iterate_records, parse_control_key
from ottla.protocol.records_header import iterate_batches


def committed_batches(data: PartitionData, position: Offset) -> Iterator[tuple[Offset, Iterable[Record]]]:
    """Each whole batch: the offset behind the batch, and its records if the consumer returns them."""
    content = bytes(data.records or b"")
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ())
    aborting = set[int]()
    for at, header in iterate_batches(content):
        while aborted and aborted[0][0] <= header.last_offset:
            aborting.add(aborted.pop(0)[1])
        records: Iterable[Record] = ()
        if header.is_control:
            if parse_control_key(next(iterate_records(content, at)).key)[1] == ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif header.base_offset >= position and header.producer_id not in aborting:
            records = iterate_records(content, at)
        position = max(position, header.next_offset)
        yield position, records
