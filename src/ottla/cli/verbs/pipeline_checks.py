"""`ottla pipeline validate`, and the commands that change the checkpoint of a stopped pipeline: `reset`, `repartition`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ottla.cli.options.client_options import pairs, property_option, servers_option
from ottla.cli.options.output_format import output_option
from ottla.cli.options.pipeline_options import CHECKPOINTS, SPARK_SETTINGS, STATE, SUFFIX, pick, version
from ottla.cli.options.profile_option import profiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.pipeline import Pipeline

_MOST_STATE_PARTITIONS = 10_000
"""Each state partition is a task and several files in every batch."""


@click.command()
@click.argument("file")
@click.option("--name", help="Use only the pipeline of this name.")
@servers_option(None, "Brokers, as HOST:PORT,...: also check that the input topics exist.")
@property_option()
@profiled
@click.option("--plans/--no-plans", default=True, show_default=True,
              help="Start Spark and analyse columns, types and plans (a dry run), also against the checkpoint.")  # fmt: skip
@CHECKPOINTS
@SUFFIX
@SPARK_SETTINGS
@output_option("table", "json")
@STATE
def validate(
    file: str,
    name: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    plans: bool,  # noqa: FBT001 - click passes flags so
    checkpoints: str | None,
    suffix: str,
    spark_settings: tuple[str, ...],
    output: str,
    state: str | None,
) -> None:
    r"""Check FILE without running anything: names, inputs, circles, output modes, columns, types and plans.

    If the pipeline has a checkpoint, each step is compared with it: which steps go on, which need a backfill.

    \b
    Examples:
      ottla pipeline validate shop.py --no-plans
      ottla pipeline validate shop.py -b localhost:9092
    """
    from ottla.cli.terminal.output import report
    from ottla.model.user_error import UserError
    from ottla.pipelines.build import RunSettings

    pipelines = version(pick(file, name), suffix)
    ordered = [(pipeline, pipeline.in_order()) for pipeline in pipelines]
    settings = RunSettings(
        bootstrap_servers=bootstrap_servers or "127.0.0.1:9092", checkpoints="", client=pairs("--property", properties)
    )
    reasons: list[str] = []
    kept: list[str] = []
    if bootstrap_servers:
        from ottla.cli.options.profiles import Profile
        from ottla.cli.options.reachability import check_login
        from ottla.pipelines.topics import existing_topics

        check_login(Profile(bootstrap_servers, properties=dict(settings.client)))
        for _, steps in ordered:
            try:
                existing_topics(settings, steps)
            except UserError as problem:
                reasons.append(str(problem))
    if plans:
        root = _root(checkpoints, state)
        reasons += _analysed(pipelines, settings, root, pairs("--conf", spark_settings), kept)
    if reasons:
        raise UserError("\n       ".join(reasons))
    names = {pipeline.name: [step.name for step in steps] for pipeline, steps in ordered}
    lines = [f"{name}: {len(steps)} steps, in order: {', '.join(steps)}" for name, steps in names.items()]
    report("\n".join([*lines, *(f"  {line}" for line in kept)]), output, {"pipelines": names, "checkpoints": kept})


def _analysed(
    pipelines: Sequence[Pipeline], settings: RunSettings, root: str, spark_settings: dict[str, str], kept: list[str]
) -> list[str]:
    """What is wrong; `kept` gets a line for each query that goes on with its checkpoint."""
    from ottla.pipelines.analysis import problems
    from ottla.pipelines.checkpoints import Checkpoint, open_files
    from ottla.pipelines.reset import local_session

    session = local_session(spark_settings)
    try:
        files = open_files(session, root)
        return [
            reason
            for pipeline in pipelines
            for reason in problems(session, pipeline, settings, Checkpoint(files, f"{root}/{pipeline.name}"), kept)
        ]
    finally:
        session.stop()


def _root(checkpoints: str | None, state: str | None) -> str:
    from ottla.pipelines import supervisor
    from ottla.pipelines.checkpoints import checkpoint_root

    return checkpoint_root(checkpoints or os.path.join(supervisor.state_directory(state), "checkpoints"))


def _refuse_running(name: str, state: str | None) -> None:
    from ottla.model.user_error import UserError
    from ottla.pipelines import supervisor

    folder = supervisor.state_directory(state)
    supervisor.paths(folder, name)  # refuses a name that is a path
    if supervisor.is_under_way(folder, name):
        raise UserError(f"{name} is running: stop it first with `ottla pipeline stop {name}`")


@click.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, _MOST_STATE_PARTITIONS), required=True, metavar="N",
              help="State partitions of each query that has state.")  # fmt: skip
@servers_option()
@property_option()
@profiled
@CHECKPOINTS
@SPARK_SETTINGS
@output_option("table", "json")
@STATE
def repartition(
    name: str,
    partitions: int,
    bootstrap_servers: str,
    properties: tuple[str, ...],
    checkpoints: str | None,
    spark_settings: tuple[str, ...],
    output: str,
    state: str | None,
) -> None:
    r"""Change the number of state partitions of a stopped pipeline. Positions, state and outputs stay.

    A checkpoint keeps the number of its first start, however large the cluster is later.

    \b
    Example:
      ottla pipeline repartition shop --partitions 32
    """
    from ottla.cli.terminal.output import report
    from ottla.pipelines.checkpoints import Checkpoint, open_files
    from ottla.pipelines.repartition import repartition as change
    from ottla.pipelines.reset import local_session

    _refuse_running(name, state)
    root = _root(checkpoints, state)
    session = local_session(pairs("--conf", spark_settings))
    try:
        client = {"bootstrap.servers": bootstrap_servers, **pairs("--property", properties)}
        changed = change(session, Checkpoint(open_files(session, root), f"{root}/{name}"), client, partitions)
    finally:
        session.stop()
    lines = [f"{query}: {before} -> {partitions} state partitions" for query, before in changed]
    words = "\n".join(lines) or f"{name}: every query with state has {partitions} partitions already"
    report(words, output, {"name": name, "partitions": partitions, "before": dict(changed)})


@click.command()
@click.argument("name")
@servers_option()
@property_option()
@profiled
@CHECKPOINTS
@SPARK_SETTINGS
@click.option("--cluster-gone", is_flag=True,
              help="The cluster of the pipeline does not exist any more: do not compare clusters.")  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@output_option("table", "json")
@STATE
def reset(
    name: str,
    bootstrap_servers: str,
    checkpoints: str | None,
    properties: tuple[str, ...],
    spark_settings: tuple[str, ...],
    cluster_gone: bool,  # noqa: FBT001 - click passes flags so
    yes: bool,  # noqa: FBT001 - click passes flags so
    output: str,
    state: str | None,
) -> None:
    r"""Forget the positions, the state, the markers and the consumer groups of a pipeline. Its outputs stay as they are.

    The next start reads the inputs from their beginning, and writes their results into the outputs again.

    \b
    Example:
      ottla pipeline reset shop
    """
    from ottla.cli.terminal.output import report
    from ottla.pipelines import reset as resetting
    from ottla.pipelines.checkpoints import Checkpoint

    _refuse_running(name, state)
    root = _root(checkpoints, state)
    checkpoint = Checkpoint(resetting.files_of(root, pairs("--conf", spark_settings)), f"{root}/{name}")
    queries = resetting.stored_queries(checkpoint)
    if not yes:
        click.confirm(
            f"forget the positions and the state of {len(queries)} queries in {checkpoint.folder}?",
            abort=True,
            err=True,
        )
    client = {"bootstrap.servers": bootstrap_servers, **pairs("--property", properties)}
    forgotten = resetting.reset(checkpoint, client, cluster_gone=cluster_gone)
    words = f"{name}: forgot {len(queries)} queries and {forgotten} groups of markers"
    report(words, output, {"name": name, "queries": len(queries), "marker_groups": forgotten})
