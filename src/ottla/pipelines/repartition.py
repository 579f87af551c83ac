"""Changes the number of a stopped pipeline's state partitions, by Spark's own offline repartition (PySpark 4.2 and newer).

Spark adds a batch without records to the checkpoint that holds the same state in other partitions. The next run goes on
behind that batch. A batch that is planned and not finished must be finished first, because a query numbers its markers by
batch: a skipped batch would be written again under another number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint
from ottla.pipelines.driver_lock import DriverLock
from ottla.pipelines.reasons import KEEP_OR_SWITCH, plain_reason
from ottla.pipelines.reset import stored_queries
from ottla.pipelines.stored_state import StoredState, partitions_of, stored_state
from ottla.tables.topics import settings_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def repartition(
    spark: SparkSession, checkpoint: Checkpoint, client: Mapping[str, str], partitions: int
) -> list[tuple[str, int]]:
    """The queries that changed, with their number before. A query that has the number already is left alone, so a command
    that stopped in the middle can be repeated. UserError before the first change if one of the queries cannot change."""
    if not hasattr(spark, "_streamingCheckpointManager"):
        raise UserError(
            "this PySpark cannot change state partitions, which needs 4.2 or newer: create new outputs with `ottla pipeline "
            "backfill` under another spark.sql.shuffle.partitions, and go over to them with `ottla pipeline switch`"
        )
    checkpoint_id = checkpoint.note().get("id")
    stored = [state for query in stored_queries(checkpoint) if (state := stored_state(checkpoint, query)) is not None]
    with_state = [state for state in stored if state.has_state]
    if checkpoint_id is None or not with_state:
        raise UserError(f"no query of {checkpoint.folder} has state: there is nothing to repartition")
    with DriverLock(settings_from(client, "ottla-pipelines"), checkpoint, checkpoint_id):
        changing = [state for state in with_state if _is_to_change(checkpoint, state, partitions)]
        for state in changing:
            _change(spark, checkpoint, state, partitions)
    return [(state.query, state.partitions) for state in changing]


def _is_to_change(checkpoint: Checkpoint, state: StoredState, partitions: int) -> bool:
    if state.is_finished:
        return state.partitions != partitions
    before = partitions_of(checkpoint, state.query, state.batch - 1) if state.batch else state.partitions
    if before == state.partitions:
        raise UserError(
            f"batch {state.batch} of {state.query} is not finished: finish it with `ottla pipeline run FILE --once`, and "
            "repartition then"
        )
    if state.partitions != partitions:
        raise UserError(
            f"{state.query} is in the middle of a change from {before} to {state.partitions} partitions: finish it with "
            f"--partitions {state.partitions} first"
        )
    return True


def _change(spark: SparkSession, checkpoint: Checkpoint, state: StoredState, partitions: int) -> None:
    manager = spark._streamingCheckpointManager  # noqa: SLF001 - Spark has no public name for it yet
    try:
        manager.repartition(f"{checkpoint.folder}/{state.query}", partitions)
    except (Py4JJavaError, PySparkException) as problem:
        reason = plain_reason(problem)
        way_out = KEEP_OR_SWITCH if "UNSUPPORTED" in reason else "the command can be repeated"
        raise UserError(
            f"the state of {state.query} stays in {state.partitions} partitions: {reason}; {way_out}"
        ) from problem
