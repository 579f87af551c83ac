"""`ottla pipeline validate` and `ottla pipeline reset`."""

from __future__ import annotations

import os

import click

from ottla.cli.options.pipeline_options import STATE, pairs, pick


@click.command()
@click.argument("file")
@click.option("--name", help="Use only the pipeline of this name.")
@click.option("-b", "--bootstrap-servers", help="Brokers, as HOST:PORT,...: also check that the input topics exist.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE",
              help="Kafka client property; may be repeated.")  # fmt: skip
@click.option("--plans/--no-plans", default=True, show_default=True,
              help="Start Spark and analyse columns, types and plans (a dry run).")  # fmt: skip
@click.option("--conf", "spark_settings", multiple=True, metavar="NAME=VALUE", help="Spark setting; may be repeated.")
def validate(
    file: str,
    name: str | None,
    bootstrap_servers: str | None,
    properties: tuple[str, ...],
    plans: bool,  # noqa: FBT001 - click passes flags so
    spark_settings: tuple[str, ...],
) -> None:
    r"""Check FILE without running anything: names, inputs, circles, output modes, columns, types and plans.

    \b
    Examples:
      ottla pipeline validate shop.py --no-plans
      ottla pipeline validate shop.py -b localhost:9092
    """
    from ottla.model.user_error import UserError

    pipelines = pick(file, name)
    ordered = [(pipeline, pipeline.in_order()) for pipeline in pipelines]
    reasons: list[str] = []
    if plans or bootstrap_servers:
        from ottla.pipelines.build import RunSettings

        settings = RunSettings(
            bootstrap_servers=bootstrap_servers or "127.0.0.1:9092",
            checkpoints="",
            client=pairs("--property", properties),
        )
        if bootstrap_servers:
            from ottla.pipelines.topics import existing_topics

            for _, steps in ordered:
                try:
                    existing_topics(settings, steps)
                except UserError as problem:
                    reasons.append(str(problem))
        if plans:
            from ottla.pipelines.analysis import problems
            from ottla.pipelines.reset import local_session

            session = local_session(pairs("--conf", spark_settings))
            try:
                reasons += [reason for pipeline in pipelines for reason in problems(session, pipeline, settings)]
            finally:
                session.stop()
    if reasons:
        raise UserError("\n       ".join(reasons))
    for pipeline, steps in ordered:
        click.echo(f"{pipeline.name}: {len(steps)} steps, in order: {', '.join(step.name for step in steps)}")


@click.command()
@click.argument("name")
@click.option("-b", "--bootstrap-servers", envvar="OTTLA_BOOTSTRAP_SERVERS", default="127.0.0.1:9092",
              show_default=True, help="Brokers, as HOST:PORT,...")  # fmt: skip
@click.option("--checkpoints", metavar="DIR", help="Directory for offsets and state (default: in the state directory).")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE",
              help="Kafka client property; may be repeated.")  # fmt: skip
@click.option("--conf", "spark_settings", multiple=True, metavar="NAME=VALUE",
              help="Spark setting for checkpoints on an object store; may be repeated.")  # fmt: skip
@click.option("--cluster-gone", is_flag=True,
              help="The cluster of the pipeline does not exist any more: do not compare clusters.")  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@STATE
def reset(
    name: str,
    bootstrap_servers: str,
    checkpoints: str | None,
    properties: tuple[str, ...],
    spark_settings: tuple[str, ...],
    cluster_gone: bool,  # noqa: FBT001 - click passes flags so
    yes: bool,  # noqa: FBT001 - click passes flags so
    state: str | None,
) -> None:
    r"""Forget the positions, the state, the markers and the consumer groups of a pipeline. Its outputs stay as they are.

    The next start reads the inputs from their beginning, and writes their results into the outputs again.

    \b
    Example:
      ottla pipeline reset shop
    """
    from ottla.model.user_error import UserError
    from ottla.pipelines import reset as resetting
    from ottla.pipelines import supervisor
    from ottla.pipelines.checkpoints import Checkpoint, checkpoint_root

    folder = supervisor.state_directory(state)
    supervisor.paths(folder, name)  # refuses a name that is a path
    if supervisor.is_under_way(folder, name):
        raise UserError(f"{name} is running: stop it first with `ottla pipeline stop {name}`")
    root = checkpoint_root(checkpoints or os.path.join(folder, "checkpoints"))
    checkpoint = Checkpoint(resetting.files_of(root, pairs("--conf", spark_settings)), f"{root}/{name}")
    queries = resetting.stored_queries(checkpoint)
    if not yes:
        click.confirm(
            f"forget the positions and the state of {len(queries)} queries in {checkpoint.folder}?", abort=True
        )
    client = {"bootstrap.servers": bootstrap_servers, **pairs("--property", properties)}
    forgotten = resetting.reset(checkpoint, client, cluster_gone=cluster_gone)
    click.echo(f"{name}: forgot {len(queries)} queries and {forgotten} groups of markers")
