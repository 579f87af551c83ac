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
