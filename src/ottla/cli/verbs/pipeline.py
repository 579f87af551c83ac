"""`ottla pipeline`: run, start, stop and look at data pipelines on Spark."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.client_options import pairs
from ottla.cli.options.combinations import refuse_together
from ottla.cli.options.output_format import output_option
from ottla.cli.options.pipeline_options import STATE, SUFFIX, pick, run_options, version
from ottla.cli.options.profile_option import words_again
from ottla.cli.options.web_options import allow_open_option, refuse_open, web_access, web_options
from ottla.model.peer_text import visible

if TYPE_CHECKING:
    from ottla.pipelines.graph import NodeColumns
    from ottla.pipelines.pipeline import Pipeline


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    r"""Data pipelines on Spark: plain functions between topics and tables, exactly once.

    \b
    Examples:
      ottla pipeline validate shop.py
      ottla pipeline start shop.py
      ottla pipeline graph shop.py
    """


@pipeline.command()
@click.argument("file")
@run_options
@SUFFIX
@click.option("--once", is_flag=True, help="Process the records that exist now, then stop.")
@click.option("--quiet", is_flag=True, help="Do not show the live display.")
@click.option("--status", "status_file", hidden=True, help="File for the status while the pipeline runs.")
def run(file: str, **options: Any) -> None:
    r"""Run the pipelines of FILE here, until Ctrl-C.

    \b
    Examples:
      ottla pipeline run shop.py
      ottla pipeline run shop.py --once --master 'local[4]'
    """
    _run(file, version(pick(file, options["name"]), options["suffix"]), options)


@pipeline.command()
@click.argument("file")
@run_options
@click.option("--suffix", default="-v2", show_default=True, help="Text to append to the name of each output.")
@click.option(
    "--from-timestamp",
    type=int,
    metavar="MS",
    help="Start at this timestamp, in milliseconds since 1970 (default: the beginning).",
)
@click.option("--from-offsets", metavar="JSON", help='Start at these offsets, such as {"topic":{"0":23}}.')
@click.option(
    "--path", metavar="LOG_DIR", help="Read inputs from the segment files in this directory, without a broker."
)
@click.option("--quiet", is_flag=True, help="Do not show the live display.")
def backfill(
    file: str, suffix: str, from_timestamp: int | None, from_offsets: str | None, path: str | None, **options: Any
) -> None:
    r"""Run FILE once over all past records, into new outputs for `switch`."""
    refuse_together("--from-timestamp", from_timestamp, "--from-offsets", from_offsets)
    starting = {}
    if from_timestamp is not None:
        starting = {"startingTimestamp": str(from_timestamp), "startingOffsetsByTimestampStrategy": "latest"}
    elif from_offsets is not None:
        starting = {"startingOffsets": from_offsets}
    else:
        starting = {"startingOffsets": "earliest"}
    once_options = options | {"once": True, "starting": starting, "path": path}

    from ottla.pipelines.topics import output_topics

    renamed = version(pick(file, options["name"]), suffix)
    made = frozenset(port.name for pipeline in renamed for port in output_topics(pipeline.steps))
    _run(file, renamed, once_options | {"made_here": made})


@pipeline.command()
@click.argument("file")
@run_options
@SUFFIX
@output_option("table", "json")
def start(file: str, state: str | None, name: str | None, suffix: str, output: str, **options: Any) -> None:
    """Start the pipelines of FILE in the background, one process each."""
    from ottla.cli.options.profiles import Profile
    from ottla.cli.options.reachability import refuse_wrong_login
    from ottla.pipelines import supervisor

    client = pairs("--property", options["properties"])
    refuse_wrong_login(Profile(options["bootstrap_servers"], properties=client))
    context = click.get_current_context()
    rows = []
    for pipeline in pick(file, name):
        row = _start(supervisor.state_directory(state), file, pipeline, suffix, context)
        if output == "table":
            click.echo(_started(row))
        rows.append(row)
    if output == "json":
        click.echo(json.dumps(rows))


def _started(row: dict[str, Any]) -> str:
    return f"{row['name']}: started as process {row['pid']}; its log is {row['log']}"


def _start(folder: str, file: str, pipeline: Pipeline, suffix: str, context: click.Context) -> dict[str, Any]:
    from ottla.pipelines import supervisor

    words = [os.path.abspath(file), "--name", pipeline.name, "--state", folder, *_words_again(context)]
    named = pipeline.name + suffix
    pid = supervisor.start(folder, named, [*words, "--suffix", suffix] if suffix else words, cwd=os.getcwd())
    return {"name": named, "pid": pid, "log": supervisor.paths(folder, named)[2]}


@pipeline.command()
@click.argument("file")
@run_options
@click.option("--suffix", default="-v2", show_default=True, help="Suffix of the new version, as given to `backfill`.")
@click.option("--from", "old", metavar="NAME", help="Name of the running version (default: the name of the pipeline).")
@click.option(
    "--wait",
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that the new version may need to catch up.",
)
@output_option("table", "json")
def switch(
    file: str,
    state: str | None,
    name: str | None,
    suffix: str,
    old: str | None,
    wait: float,
    output: str,
    **options: Any,
) -> None:
    r"""Replace the running version of a pipeline by the version of FILE that `backfill` made.

    The command starts the new version, waits until that version has caught up, and stops the old version. Old outputs stay
    as they are. Point readers to the names of the new outputs, which the command prints.

    \b
    Example:
      ottla pipeline switch shop.py --suffix -v3 --from shop-v2
    """
    from ottla.cli.terminal.output import report
    from ottla.model.user_error import UserError
    from ottla.pipelines import supervisor
    from ottla.pipelines import switch as steps
    from ottla.pipelines.checkpoints import checkpoint_root
    from ottla.pipelines.reset import files_of

    context = click.get_current_context()

    pipelines = pick(file, name)
    if len(pipelines) != 1:
        raise UserError(f"{file} holds {', '.join(pipeline.name for pipeline in pipelines)}: choose one with --name")
    folder = supervisor.state_directory(state)
    before, after = pipelines[0], version(pipelines, suffix)[0]
    progress = partial(click.echo, err=output == "json")
    root = checkpoint_root(options["checkpoints"] or os.path.join(folder, "checkpoints"))
    if not supervisor.is_under_way(folder, after.name):  # else it has begun each of its queries itself
        steps.check_backfilled(files_of(root, pairs("--conf", options["spark_settings"])), root, before, after)
    steps.switch(
        folder,
        old or before.name,
        after.name,
        lambda: progress(_started(_start(folder, file, before, suffix, context))),
        patience_s=wait,
        report=progress,
    )
    renamed = dict(steps.renamed_outputs(before, after))
    words = "\n".join(f"  {was} -> {is_now}" for was, is_now in renamed.items())
    report(words, output, {"name": after.name, "outputs": renamed})


@pipeline.command()
@click.argument("name")
@output_option("table", "json")
@STATE
def stop(name: str, output: str, state: str | None) -> None:
    """Stop a started pipeline; its checkpoints are kept."""
    from ottla.cli.terminal.output import report
    from ottla.pipelines import supervisor

    stopped = supervisor.stop(supervisor.state_directory(state), name)
    report(f"{name}: {'stopped' if stopped else 'was not running'}", output, {"name": name, "stopped": stopped})


@pipeline.command()
@click.argument("name")
@output_option("table", "json")
@STATE
def status(name: str, output: str, state: str | None) -> None:
    """Show whether a started pipeline starts, waits, catches up or runs, with rows, lag, state size and errors."""
    from ottla.pipelines import supervisor

    pipeline_status = supervisor.current(supervisor.state_directory(state), name)
    if output == "json":
        click.echo(json.dumps(pipeline_status))
        return
    if pipeline_status.get("kind") == "connector":
        click.echo(_line(pipeline_status))
    else:
        from ottla.cli.terminal.tables import print_whole
        from ottla.pipelines.display import expectation_table, status_table

        print_whole(status_table(pipeline_status))
        expectations = expectation_table(pipeline_status)
        if expectations is not None:
            print_whole(expectations)
    if pipeline_status.get("ui") and pipeline_status["state"] == "running":
        click.echo(f"Spark's UI: {visible(str(pipeline_status['ui']))}")
    for sentence in pipeline_status.get("warnings") or ():
        click.echo(f"warning: {visible(str(sentence))}")
    if pipeline_status.get("error"):
        click.echo(f"last error: {visible(str(pipeline_status['error']), lines=True)}")  # an error may quote a record


def _line(row: dict[str, Any]) -> str:
    """One row of the list; the lag is left out for a connector that reads no topic."""
    lag = "" if row.get("lag") is None else f"  lag {row['lag']:,}"
    state = row.get("phase") or row["state"]
    return f"{row['name']:<24} {state:<11} {row.get('rows') or 0:>12,} rows{lag}"


@pipeline.command("list")
@output_option("table", "json")
@STATE
def list_(output: str, state: str | None) -> None:
    """List the pipelines that were started with this state directory."""
    from ottla.pipelines import supervisor

    rows = supervisor.every(supervisor.state_directory(state))
    if output == "json":
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(_line(row))


@pipeline.command()
@click.argument("file")
@click.option("--name", help="Use only the pipeline of this name.")
@click.option("--columns", "with_columns", is_flag=True, help="Show the columns of topics and tables; starts Spark.")
@output_option("svg", "json")
def graph(file: str, name: str | None, with_columns: bool, output: str) -> None:  # noqa: FBT001 - click passes flags so
    """Draw the graph of steps, topics and tables as SVG."""
    from ottla.pipelines import graph as drawing

    pipelines, columns = pick(file, name), dict[str, "NodeColumns"]()
    if with_columns:
        from ottla.pipelines.graph_columns import columns_of

        columns = columns_of(pipelines)
    for pipeline in pipelines:
        drawn = columns.get(pipeline.name)
        click.echo(drawing.svg(pipeline, drawn) if output == "svg" else json.dumps(drawing.graph(pipeline, drawn)))


@pipeline.command()
@click.option("-l", "--listen", default="127.0.0.1:8084", show_default=True, metavar="HOST:PORT",
              help="Address to listen on.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="Host name that the console may use for this server; may be repeated.")  # fmt: skip
@web_options
@allow_open_option
@STATE
def serve(
    *,
    listen: str,
    state: str | None,
    allowed_hosts: tuple[str, ...],
    audit: tuple[str, ...],
    allow_open: bool,
    **web: Any,
) -> None:
    r"""Serve the state of local pipelines to the console, over HTTP.

    \b
    Examples:
      ottla pipeline serve
      ottla pipeline serve -l 0.0.0.0:8084 --users users.txt --tls-certificate server.pem
    """
    import uvicorn

    from ottla.client.audit.sinks import AuditDestinationError
    from ottla.client.audit.trail import AuditTrail
    from ottla.pipelines.serve import REALM, app, role_for
    from ottla.pipelines.supervisor import state_directory
    from ottla.security.web import WebAccessError
    from ottla.security.web_hosts import WebHosts, host_names

    host, _, port = listen.rpartition(":")
    if not port.isdigit() or not host:
        raise click.UsageError(f"--listen {listen!r} is not HOST:PORT")
    refuse_open("`ottla pipeline serve`", host, web, allow_open=allow_open)
    hosts = WebHosts((*host_names(host, machine=socket.gethostname()), *allowed_hosts))
    try:
        access = web_access(web, REALM)
        options = access.uvicorn_options()
        trail = AuditTrail.open("pipelines", audit)
    except (WebAccessError, AuditDestinationError) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    click.echo(f"the state of the pipelines is served at {access.scheme}://{listen}/pipelines")
    guarded = trail.around(access.protect(app(state_directory(state)), role_for=role_for, hosts=hosts))
    uvicorn.run(guarded, host=host.strip("[]"), port=int(port), log_level="warning", server_header=False, **options)
    trail.close()


def _run(file: str, pipelines: list[Pipeline], options: dict[str, Any]) -> None:
    from ottla.cli.options.profiles import Profile
    from ottla.cli.options.reachability import refuse_wrong_login
    from ottla.pipelines import supervisor
    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.checkpoints import checkpoint_root
    from ottla.pipelines.execution import refuse_several, run_pipelines
    from ottla.pipelines.session import has_data_source, spark

    state = supervisor.state_directory(options.get("state"))
    settings = RunSettings(
        bootstrap_servers=options["bootstrap_servers"],
        checkpoints=checkpoint_root(options["checkpoints"] or os.path.join(state, "checkpoints")),
        client=pairs("--property", options["properties"]),
        exactly_once=not options["at_least_once"],
        source_format=options["source_format"] or ("ottla" if has_data_source() else "kafka"),
        path=options.get("path"),
        starting=options.get("starting", {}),
        made_here=options.get("made_here", frozenset()),
        max_offsets_per_trigger=options["max_offsets_per_trigger"],
    )
    refuse_wrong_login(Profile(settings.bootstrap_servers, properties=dict(settings.client)))
    log = options["spark_log"] or os.path.join(state, f"{pipelines[0].name}.spark.log")
    refuse_several(file, pipelines, once=bool(options.get("once")))
    session = spark(
        options["master"],
        remote=options["remote"],
        config=pairs("--conf", options["spark_settings"]),
        log_file=log,
        py_files=options["py_files"],
        archive=options["archive"],
    )
    run_pipelines(
        session,
        pipelines,
        settings,
        once=bool(options.get("once")),
        quiet=options["quiet"],
        status_file=options.get("status_file"),
        lineage=options.get("lineage"),
    )


def _words_again(context: click.Context) -> list[str]:
    """The options of `start`, as words for `run`."""
    names = {
        "master": "--master", "remote": "--remote", "checkpoints": "--checkpoints",
        "archive": "--archive", "max_offsets_per_trigger": "--max-offsets-per-trigger", "spark_log": "--spark-log", "source_format": "--format",
        "lineage": "--lineage",
    }  # fmt: skip
    words = words_again(context.params["profile"], context.params["bootstrap_servers"])
    for parameter, option in names.items():
        if context.params.get(parameter) is not None:
            words += [option, str(context.params[parameter])]
    for value in context.params["py_files"]:
        words += ["--py-files", value]
    for value in context.params["properties"]:
        words += ["--property", value]
    for value in context.params["spark_settings"]:
        words += ["--conf", value]
    return [*words, "--at-least-once"] if context.params["at_least_once"] else words


from ottla.cli.verbs.pipeline_checks import repartition, reset, validate  # noqa: E402 - they are verbs of the group above

pipeline.add_command(repartition)
pipeline.add_command(reset)
pipeline.add_command(validate)
