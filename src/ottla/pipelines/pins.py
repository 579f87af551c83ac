"""The ends of global tables, fixed per batch: a batch that runs again reads the same offsets of the table.

A table that a step reads as a plain DataFrame is no input of the streaming query, so Spark's offset log does not hold its
position. `pinned` stores the ends beside that log, in CHECKPOINT/tables/INPUT/BATCH, before the batch reads its first row.
The batch is the newest of the offset log: Spark writes that entry before it plans the batch. The file holds positions as
positions.py stores them, with topic ids and the version of their shape. Spark calls this code in a Python process without
a JVM, which opens local files only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import scheme_of
from ottla.pipelines.ports import TopicTable
from ottla.pipelines.positions import Positions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.pipeline import Step

FOLDER = "tables"
KEPT = 100
"""As many batches as Spark keeps (spark.sql.streaming.minBatchesToRetain)."""


def folder_of(checkpoint: str, name: str) -> str:
    return os.path.join(checkpoint, FOLDER, name)


def refuse_remote_tables(steps: Iterable[Step], settings: RunSettings) -> None:
    """UserError for a global table whose ends cannot be stored beside the offset log."""
    if scheme_of(settings.checkpoints) == "file" or settings.source_format != "ottla":
        return
    for step in steps:
        for name, port in step.reads.items():
            if isinstance(port, TopicTable) and not port.changes:
                raise UserError(
                    f"step {step.name} reads {name} with table_of, which needs a local checkpoint, and the checkpoints are "
                    f"{settings.checkpoints}: use changes_of and join, or a local checkpoint"
                )


def pinned(folder: str, now: Callable[[], Positions]) -> Positions:
    """The positions of the batch that is planned: the stored ones, or those of the moment, which are stored first."""
    batch = _planned_batch(Path(folder).parents[1])
    if batch is None:  # no query runs on this checkpoint yet: a plan is only explained
        return now()
    path = Path(folder) / str(batch)
    try:
        return Positions.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except ValueError as problem:
        raise UserError(f"the stored ends of a table in {path} cannot be read: {problem}") from problem
    positions = now()
    _store(path, json.dumps(positions.to_json()))
    _remove_before(path.parent, batch - KEPT)
    return positions


def _planned_batch(checkpoint: Path) -> int | None:
    try:
        batches = [int(entry.name) for entry in os.scandir(checkpoint / "offsets") if entry.name.isdigit()]
    except FileNotFoundError:
        return None
    return max(batches, default=None)


def _store(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _remove_before(folder: Path, oldest: int) -> None:
    for entry in os.scandir(folder):
        if entry.name.isdigit() and int(entry.name) < oldest:
            os.unlink(entry.path)
