"""Which erasures (`ottla.log.erasure`) a replica has carried out, in `erasure-checkpoint` of the partition's folder.

A note is true only as long as the records below its end do not change. A log that is truncated below the end fetches
the records again, perhaps from a leader that has not erased them yet. So the note is removed before the records. A new
folder (a replica that comes back, a copy in another directory) begins without notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ottla.env.logging import get_logger
from ottla.env.seams import Storage
from ottla.log.file_names import ERASURE_CHECKPOINT
from ottla.model.erasures import Erasure
from ottla.model.ids import Offset

_log = get_logger(__name__)


def read_erasure_notes(storage: Storage, directory: str) -> tuple[str, ...]:
    path = f"{directory}/{ERASURE_CHECKPOINT}"
    try:
        return tuple(str(Erasure.parse(text)) for text in json.loads(storage.read_bytes(path)))
    except (ValueError, TypeError) as error:  # everything is looked at again: more work, no harm
        _log.warning("checkpoint.rejected", path=path, error=str(error))
        return ()


def write_erasure_notes(storage: Storage, directory: str, notes: Sequence[str]) -> None:
    storage.write_atomic(f"{directory}/{ERASURE_CHECKPOINT}", json.dumps(notes).encode())


def notes_below(notes: Iterable[str], partition: int, end: Offset) -> tuple[str, ...]:
    """The notes whose erasures end at or below `end`."""
    return tuple(text for text in notes if Erasure.parse(text).ends.get(partition, 0) <= end)


class ErasureNotes:
    """The notes of one replica: `entries` of `ottla.encryption.forget` that were carried out in its log."""

    __slots__ = ("_partition", "_storage", "directory", "entries")

    def __init__(self, storage: Storage, directory: str, partition: int, entries: tuple[str, ...]) -> None:
        self._storage = storage
        self.directory = directory
        self._partition = partition
        self.entries = entries

    def write(self, entries: Sequence[str]) -> None:
        """These erasures are carried out in all that the log has now. OSError when that cannot be written."""
        write_erasure_notes(self._storage, self.directory, entries)
        self.entries = tuple(entries)

    def forget_above(self, offset: Offset) -> None:
        """Remove the notes above `offset` before a truncation: fetched records may hold erased values again."""
        if self.entries:
            kept = notes_below(self.entries, self._partition, offset)
            if kept != self.entries:
                self.write(kept)
