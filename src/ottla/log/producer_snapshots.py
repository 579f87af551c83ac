"""`.snapshot` files: the producer state at an offset, so that a restart need not read the whole log.

Format version 1: version int16, CRC32C of what follows, then the entries. A snapshot stands at the base offset of each
segment and, after a clean shutdown, at the log end offset. A damaged snapshot is removed, and the next older snapshot
is used.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from struct import Struct

from ottla.env.seams import Storage
from ottla.log.checkpoints import write_unsynced
from ottla.log.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_name
from ottla.log.producer_state import BatchMetadata, ProducerEntry, ProducerState
from ottla.model.ids import Offset
from ottla.protocol.crc32c import crc32c

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_COVERS_FROM = 6
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(ValueError):
    """A snapshot that is cut off, of another version or with a wrong checksum."""


def encode_snapshot(state: ProducerState) -> bytes:
    """Only the last batch of a producer goes into the file: its retries older than that are not recognised."""
    pieces = [b"", len(state.producers).to_bytes(4, "big")]
    for producer_id, entry in state.producers.items():
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
        pieces.append(
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
        )
    body = b"".join(pieces)
    return VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    try:
        version, crc, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise CorruptSnapshotError(f"unknown version {version}")
        if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
            raise CorruptSnapshotError("the checksum does not match")
        rows = [_ENTRY.unpack_from(data, _HEAD.size + index * _ENTRY.size) for index in range(count)]
    except struct.error as error:
        raise CorruptSnapshotError(f"cut off: {error}") from error
    entries = {}
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset in rows:
        batches = [BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else []
        entries[producer_id] = ProducerEntry(epoch, coordinator_epoch, timestamp, txn_first_offset, batches)
    return entries


class ProducerSnapshots:
    """The snapshot files of one partition folder; `offsets` are those that exist, rising."""

    __slots__ = ("_storage", "directory", "offsets")

    def __init__(self, storage: Storage, directory: str, offsets: list[Offset]) -> None:
        self._storage = storage
        self.directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: Offset) -> str:
        return f"{self.directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"

    def write(self, state: ProducerState) -> str | None:
        """A snapshot at the state's end offset, not yet synced; None when there is one already, or no record yet."""
        offset = state.end_offset
        if offset <= (self.offsets[-1] if self.offsets else 0):
            return None
        path = self.path(offset)
        write_unsynced(self._storage, path, encode_snapshot(state))
        insort(self.offsets, offset)
        return path

    def replace(self, state: ProducerState) -> None:
        """A snapshot at the state's end offset in the place of one that stands there."""
        if state.end_offset in self.offsets:
            self.remove(state.end_offset)
        self.write(state)

    def read(self, offset: Offset) -> dict[int, ProducerEntry]:
        return decode_snapshot(self._storage.read_bytes(self.path(offset)))

    def remove(self, offset: Offset) -> None:
        self.offsets.remove(offset)
        self._storage.remove(self.path(offset))

    def remove_outside(self, low: Offset, high: Offset) -> None:
        """Drop what is not in (low, high]: the log has no records for it any more."""
        for offset in list(self.offsets):
            if offset > high or offset <= low:
                self.remove(offset)

    def mark_deleted(self, offset: Offset) -> str | None:
        """Rename the snapshot of a segment that goes; returns the file to remove later."""
        at = bisect_left(self.offsets, offset)
        if at == len(self.offsets) or self.offsets[at] != offset:
            return None
        del self.offsets[at]
        path = self.path(offset)
        try:
            self._storage.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def remove_strays(self, base_offsets: set[Offset]) -> None:
        """Keep those at a segment's base, and the latest of all when it is past the last segment."""
        newest_base = max(base_offsets, default=-1)
        strays = [offset for offset in self.offsets if offset not in base_offsets]
        for offset in strays[:-1]:
            self.remove(offset)
        if strays and base_offsets and strays[-1] < newest_base:
            self.remove(strays[-1])
