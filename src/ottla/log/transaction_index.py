"""`.txnindex`: the aborted transactions whose abort marker lies in the segment.

34 bytes each: version 0, producer id, first offset, last offset (the marker's), last stable offset at the abort. The
file exists only where a transaction was aborted. It is small, so it is read whole and never kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ottla.env.seams import Storage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Offset, ProducerId

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def append_aborted(storage: Storage, path: str, aborted: Iterable[AbortedTxn]) -> None:
    """Add entries; a torn one that an earlier failure left at the end is written over."""
    data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in aborted)
    file = storage.open(path, create=True)
    try:
        end = file.size() // _ENTRY.size * _ENTRY.size
        try:
            file.pwrite(data, end)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise
    finally:
        file.close()


def read_aborted(storage: Storage, path: str) -> list[AbortedTxn]:
    """Every entry; KAFKA_STORAGE_ERROR when one has another version. A torn last entry is left out."""
    if not storage.exists(path):
        return []
    return list(_decode(path, storage.read_bytes(path)))


def _decode(path: str, data: bytes) -> Iterator[AbortedTxn]:
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        version, producer_id, first, last, stable = _ENTRY.unpack_from(data, at)
        if version != _VERSION:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has an entry of version {version}")
        yield AbortedTxn(producer_id, first, last, stable)


def aborted_sane(data: bytes, base_offset: Offset) -> bool:
    """Whether this can be the file of the segment at `base_offset`: whole entries, markers in the segment and rising."""
    if not data or len(data) % _ENTRY.size:
        return False
    last_seen = base_offset - 1
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if version != _VERSION or producer_id < 0 or not 0 <= first <= last or not last_seen < last or stable < 0:
            return False
        last_seen = last
    return True


def truncate_aborted(storage: Storage, path: str, offset: Offset) -> None:
    """Drop the entries whose marker is at or after `offset`."""
    if not storage.exists(path):
        return
    kept = sum(1 for aborted in read_aborted(storage, path) if aborted.last_offset < offset)
    if kept == 0:
        storage.remove(path)
        return
    file = storage.open(path)
    try:
        file.truncate(kept * _ENTRY.size)
    finally:
        file.close()


def collect_aborted(
    entries: list[AbortedTxn], fetch_offset: Offset, upper_bound: Offset, overlapping: list[AbortedTxn]
) -> bool:
    """Add the transactions that overlap [fetch_offset, upper_bound); True when later segments can add none."""
    for aborted in entries:
        if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound:
            overlapping.append(aborted)
        if aborted.last_stable_offset >= upper_bound:
            return True
    return False
