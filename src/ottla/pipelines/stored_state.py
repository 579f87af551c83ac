"""What a checkpoint stores of a query's state: its partitions and operators, and whether the last batch is finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint

_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    query: str
    batch: int
    """The last batch that Spark planned."""
    is_finished: bool
    partitions: int
    """Of each stateful operator. A query without state has the number, too."""
    operators: int
    metadata: str
    """Spark's note on the batch: watermark, time and settings, as JSON."""
    inputs: tuple[frozenset[str], ...]
    """The topics of each streaming input, in the order of the plan; empty for an input of another kind."""

    @property
    def has_state(self) -> bool:
        return self.operators > 0


def stored_state(checkpoint: Checkpoint, query: str) -> StoredState | None:
    """None before the first batch of the query."""
    folder = f"{checkpoint.folder}/{query}"
    batches = _numbers(checkpoint, f"{folder}/offsets")
    if not batches:
        return None
    batch = batches[-1]
    metadata, partitions = _note(checkpoint, folder, batch)
    return StoredState(
        query=query,
        batch=batch,
        is_finished=batch in _numbers(checkpoint, f"{folder}/commits"),
        partitions=partitions,
        operators=len(_numbers(checkpoint, f"{folder}/state")),
        metadata=metadata,
        inputs=tuple(_topics(offsets) for offsets in checkpoint.offsets(query, batch)),
    )


def partitions_of(checkpoint: Checkpoint, query: str, batch: int) -> int:
    return _note(checkpoint, f"{checkpoint.folder}/{query}", batch)[1]


def _numbers(checkpoint: Checkpoint, folder: str) -> list[int]:
    return sorted(int(name) for name in checkpoint.files.names(folder) if name.isdigit())


def _note(checkpoint: Checkpoint, folder: str, batch: int) -> tuple[str, int]:
    path = f"{folder}/offsets/{batch}"
    try:
        line = (checkpoint.files.read(path) or "").splitlines()[1]
        return line, int(json.loads(line)["conf"][_PARTITIONS])
    except (IndexError, KeyError, ValueError) as problem:
        raise UserError(f"{path} does not name the state partitions of its batch: {problem!r}") from problem


def _topics(offsets: dict[str, Any]) -> frozenset[str]:
    if not all(isinstance(partitions, dict) for partitions in offsets.values()):
        return frozenset()
    return frozenset(offsets) - {"@ottla"}
