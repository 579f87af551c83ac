"""Forgets where a pipeline stands: its positions and state, and the markers of its queries in the log. Outputs stay."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ottla.connect.markers import forget_markers
from ottla.model.user_error import UserError
from ottla.pipelines.checkpoints import Checkpoint, CheckpointFiles, LocalFiles, open_files, scheme_of
from ottla.pipelines.driver_lock import DriverLock
from ottla.pipelines.input_groups import forget_groups, group_of
from ottla.tables.topics import TopicMetadata, settings_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.client.settings import ClientSettings


def local_session(settings: Mapping[str, str]) -> SparkSession:
    """A small session for file systems that only Spark can open."""
    from ottla.pipelines.session import spark

    return spark("local[1]", config=settings, low_footprint=True)


def files_of(root: str, spark_settings: Mapping[str, str]) -> CheckpointFiles:
    return LocalFiles() if scheme_of(root) == "file" else open_files(local_session(spark_settings), root)


def stored_queries(checkpoint: Checkpoint) -> dict[str, str | None]:
    """Each query with its id. UserError where no pipeline has stored anything."""
    queries = {query: checkpoint.query_id(query) for query in checkpoint.queries()}
    if not queries and not checkpoint.note():
        raise UserError(
            f"there is no checkpoint {checkpoint.folder}: give the --checkpoints or --state of the pipeline"
        )
    return queries


def reset(checkpoint: Checkpoint, client: Mapping[str, str], *, cluster_gone: bool = False) -> int:
    """The number of groups with markers that are gone. UserError while a driver runs the pipeline.

    Groups go first: a reset that stops in the middle still has the ids of the queries, and can be repeated.
    """
    queries = stored_queries(checkpoint)
    settings = settings_from(client, "ottla-pipelines")
    if not cluster_gone:
        _check_cluster(checkpoint, settings)
    checkpoint_id = checkpoint.note().get("id")
    # A checkpoint of a version before has no id, and no driver of this version has used it.
    lock = DriverLock(settings, checkpoint, checkpoint_id) if checkpoint_id else None
    with lock or nullcontext():
        forgotten = sum(len(forget_markers(client, query_id)) for query_id in queries.values() if query_id is not None)
        forget_groups(client, [group_of(checkpoint.pipeline, query) for query in queries])
        checkpoint.files.remove(checkpoint.folder)  # with the file of the lock, which writes its end to that file only
    return forgotten


def _check_cluster(checkpoint: Checkpoint, settings: ClientSettings) -> None:
    """UserError if the pipeline ran on a different cluster: its markers are there, and perhaps its driver."""
    noted = checkpoint.note().get("cluster")
    with TopicMetadata(settings) as metadata:
        cluster = metadata.present(()).cluster_id
    if noted not in (None, cluster):
        raise UserError(
            f"the checkpoint {checkpoint.folder} belongs to the cluster {noted}, and this is the cluster {cluster}: give "
            "--bootstrap-servers of that one, or --cluster-gone if that one is gone for good"
        )
