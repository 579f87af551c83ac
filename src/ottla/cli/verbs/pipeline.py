"""`ottla pipeline`: run, start, stop and look at data pipelines on Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.options.combinations import refuse_together
from ottla.cli.options.output_format import output_option
from ottla.cli.options.settings_file import settings_option
from ottla.cli.options.web_options import allow_open_option, refuse_open, web_access, web_options
from ottla.model.peer_text import visible

if TYPE_CHECKING:
    from ottla.pipelines.pipeline import Pipeline

Command = TypeVar("Command", bound=Callable[..., Any])

_SUFFIX = click.option("--suffix", default="", help="Suffix of the outputs, as given to `backfill` (default: none).")
_STATE = click.option(
    "--state",
    metavar="DIR",
    help="Directory for status, log and checkpoints of started pipelines (default: $OTTLA_STATE or "
    "~/.local/state/ottla/pipelines).",
)


def _run_options(command: Command) -> Command:
    for option in (
        settings_option("master: ..., property.security.protocol: ..., conf.spark.driver.memory: ..."),
        click.option("-b", "--bootstrap-servers", envvar="OTTLA_BOOTSTRAP_SERVERS", default="127.0.0.1:9092", show_default=True, help="Brokers, as HOST:PORT,..."),
        click.option("--name", help="Use only the pipeline of this name, if FILE has several."),
        click.option("--master", default="local[*]", show_default=True, help="Spark master: local[*], "
        "spark://HOST:7077, ..."),
        click.option("--remote", help="Spark Connect server (sc://HOST:15002) to use instead of --master."),
        click.option("--checkpoints", metavar="DIR", help="Directory for offsets and state (default: in "
        "the state directory)."),
        click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Kafka "
        "client property, such as security.protocol=SSL; may be repeated."),
        click.option("--conf", "spark_settings", multiple=True, metavar="NAME=VALUE", help="Spark "
        "setting; may be repeated."),
        click.option("--max-offsets-per-trigger", type=click.IntRange(0), help="Most records in a "
        "micro-batch (default: 5,000,000; 0: no limit)."),
        click.option("--at-least-once", is_flag=True, help="Write to topics without transactions; "
        "records may be duplicated after a failure."),
        click.option("--spark-log", metavar="FILE", help="File for Spark's own log (default: in the state directory)."),
        click.option("--format", "source_format", default="ottla", type=click.Choice(["ottla", "kafka"]), hidden=True),
        _STATE,
    ):  # fmt: skip
        command = option(command)
    return command


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
@_run_options
@_SUFFIX
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
    _run(file, _version(_pick(file, options["name"]), options["suffix"]), options)


@pipeline.command()
@click.argument("file")
@_run_options
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
    r"""Run FILE once over all past records, into new outputs; `switch` then continues with the new outputs.

    \b
    Example:
      ottla pipeline backfill shop.py --suffix -v2
      ottla pipeline switch shop.py --suffix -v2
    """
    refuse_together("--from-timestamp", from_timestamp, "--from-offsets", from_offsets)
    starting = {}
    if from_timestamp is not None:
        starting = {"startingTimestamp": str(from_timestamp), "startingOffsetsByTimestampStrategy": "latest"}
    elif from_offsets is not None:
        starting = {"startingOffsets": from_offsets}
    else:
        starting = {"startingOffsets": "earliest"}
    run_options = options | {"once": True, "starting": starting, "path": path}

    from ottla.pipelines.topics import output_topics

    renamed = _version(_pick(file, options["name"]), suffix)
    made = frozenset(port.name for pipeline in renamed for port in output_topics(pipeline.steps))
    _run(file, renamed, run_options | {"made_here": made})


@pipeline.command()
@click.argument("file")
@_run_options
@_SUFFIX
def start(file: str, state: str | None, name: str | None, suffix: str, **_options: Any) -> None:
    """Start the pipelines of FILE in the background, one process each."""
    from ottla.pipelines import supervisor

    context = click.get_current_context()

    for pipeline in _pick(file, name):
        _start(supervisor.state_directory(state), file, pipeline, suffix, context)


def _start(folder: str, file: str, pipeline: Pipeline, suffix: str, context: click.Context) -> None:
    from ottla.pipelines import supervisor

    words = [os.path.abspath(file), "--name", pipeline.name, "--state", folder, *_words_again(context)]
    named = pipeline.name + suffix
    pid = supervisor.start(folder, named, [*words, "--suffix", suffix] if suffix else words, cwd=os.getcwd())
    click.echo(f"{named}: started as process {pid}; its log is {supervisor.paths(folder, named)[2]}")


@pipeline.command()
@click.argument("file")
@_run_options
@click.option("--suffix", default="-v2", show_default=True, help="Suffix of the new version, as given to `backfill`.")
@click.option("--from", "old", metavar="NAME", help="Name of the running version (default: the name of the pipeline).")
@click.option(
    "--wait",
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that the new version may need to catch up.",
)
def switch(
    file: str, state: str | None, name: str | None, suffix: str, old: str | None, wait: float, **options: Any
) -> None:
    r"""Go over to the version of FILE that a backfill made: run it, wait until it has caught up, stop the old one.

    Old outputs stay as they are; readers go over to the new names, which are printed.

    \b
    Example:
      ottla pipeline switch shop.py --suffix -v3 --from shop-v2
    """
    from ottla.model.user_error import UserError
    from ottla.pipelines import supervisor
    from ottla.pipelines import switch as steps

    context = click.get_current_context()

    pipelines = _pick(file, name)
    if len(pipelines) != 1:
        raise UserError(f"{file} holds {', '.join(pipeline.name for pipeline in pipelines)}: choose one with --name")
    folder = supervisor.state_directory(state)
    before, after = pipelines[0], _version(pipelines, suffix)[0]
    steps.check_backfilled(options["checkpoints"] or os.path.join(folder, "checkpoints"), before, after)
    steps.switch(
        folder,
        old or before.name,
        after.name,
        lambda: _start(folder, file, before, suffix, context),
        patience_s=wait,
        report=click.echo,
    )
    for was, is_now in steps.renamed_outputs(before, after):
        click.echo(f"  {was} -> {is_now}")


@pipeline.command()
@click.argument("name")
@_STATE
def stop(name: str, state: str | None) -> None:
    """Stop a started pipeline; its checkpoints are kept."""
    from ottla.pipelines import supervisor

    stopped = supervisor.stop(supervisor.state_directory(state), name)
    click.echo(f"{name}: {'stopped' if stopped else 'was not running'}")


@pipeline.command()
@click.argument("name")
@output_option("table", "json")
@_STATE
def status(name: str, output: str, state: str | None) -> None:
    """Show rows, rates, lag, state size and errors of a started pipeline."""
    from ottla.pipelines import supervisor

    pipeline_status = supervisor.current(supervisor.state_directory(state), name)
    if output == "json":
        click.echo(json.dumps(pipeline_status))
        return
    if pipeline_status.get("kind") == "connector":
        click.echo(_line(pipeline_status))
    else:
        from ottla.cli.terminal.output import console
        from ottla.pipelines.display import status_table

        console().print(status_table(pipeline_status))
    if pipeline_status.get("error"):
        click.echo(f"last error: {visible(str(pipeline_status['error']), lines=True)}")  # an error may quote a record


def _line(row: dict[str, Any]) -> str:
    """One row of the list; the lag is left out for a connector that reads no topic."""
    lag = "" if row.get("lag") is None else f"  lag {row['lag']:,}"
    return f"{row['name']:<24} {row['state']:<10} {row.get('rows') or 0:>12,} rows{lag}"


@pipeline.command("list")
@output_option("table", "json")
@_STATE
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
def validate(file: str, name: str | None) -> None:
    """Check FILE without running anything: names, inputs, circles, output modes."""
    for pipeline in _pick(file, name):
        steps = pipeline.in_order()
        click.echo(f"{pipeline.name}: {len(steps)} steps, in order: {', '.join(step.name for step in steps)}")


@pipeline.command()
@click.argument("file")
@click.option("--name", help="Use only the pipeline of this name.")
@output_option("svg", "json")
def graph(file: str, name: str | None, output: str) -> None:
    """Draw the graph of steps, topics and tables as SVG."""
    from ottla.pipelines.graph import graph as as_json
    from ottla.pipelines.graph import svg

    for pipeline in _pick(file, name):
        click.echo(svg(pipeline) if output == "svg" else json.dumps(as_json(pipeline)))


@pipeline.command()
@click.option("-l", "--listen", default="127.0.0.1:8084", show_default=True, metavar="HOST:PORT",
              help="Address to listen on.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="Host name that the console may use for this server; may be repeated.")  # fmt: skip
@web_options
@allow_open_option
@_STATE
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


def _pick(file: str, name: str | None) -> list[Pipeline]:
    from ottla.model.user_error import UserError
    from ottla.pipelines.pipeline import load_pipelines

    pipelines = load_pipelines(file)
    if name is None:
        return pipelines
    named = [pipeline for pipeline in pipelines if pipeline.name == name]
    if not named:
        raise UserError(f"{file} has no pipeline {name!r}; it has {', '.join(pipeline.name for pipeline in pipelines)}")
    return named


def _version(pipelines: list[Pipeline], suffix: str) -> list[Pipeline]:
    """The pipelines as they are written, or with the outputs that a suffix names."""
    from ottla.pipelines.run import backfilled

    return [backfilled(pipeline, suffix) for pipeline in pipelines] if suffix else pipelines


def _run(file: str, pipelines: list[Pipeline], options: dict[str, Any]) -> None:
    from rich.console import Console

    from ottla.model.user_error import UserError
    from ottla.pipelines import supervisor
    from ottla.pipelines.build import RunSettings
    from ottla.pipelines.display import Display, status_table
    from ottla.pipelines.run import PipelineRun
    from ottla.pipelines.session import spark
    from ottla.pipelines.status import pipeline_status

    state = supervisor.state_directory(options.get("state"))
    settings = RunSettings(
        bootstrap_servers=options["bootstrap_servers"],
        checkpoints=os.path.abspath(options["checkpoints"] or os.path.join(state, "checkpoints")),
        client=_pairs("--property", options["properties"]),
        exactly_once=not options["at_least_once"],
        source_format=options["source_format"],
        path=options.get("path"),
        starting=options.get("starting", {}),
        made_here=options.get("made_here", frozenset()),
        max_offsets_per_trigger=options["max_offsets_per_trigger"],
    )
    if len(pipelines) > 1 and not options.get("once"):
        raise UserError(
            f"{file} holds {', '.join(pipeline.name for pipeline in pipelines)}: choose one with --name, or use start"
        )
    log = options["spark_log"] or os.path.join(state, f"{pipelines[0].name}.spark.log")
    session = spark(
        options["master"], remote=options["remote"], config=_pairs("--conf", options["spark_settings"]), log_file=log
    )
    console = Console()
    try:
        for pipeline in pipelines:
            work = PipelineRun(session, pipeline, settings)
            _stop_on_signals(work)
            reporter = _Reporter(work, options.get("status_file"))
            with Display(console, quiet=options["quiet"]) as display:
                try:
                    reporter(work)
                    call = _in_sequence(display, reporter)
                    work.once(call) if options.get("once") else work.continuously(call)
                except BaseException as problem:  # raised again below; the status file must show the failure first
                    reporter.end("failed", str(problem))
                    raise
            reporter.end("finished" if options.get("once") else "stopped")
            console.print(status_table(pipeline_status(work, "done")))
    finally:
        session.stop()


class _Reporter:
    """Writes the status file, at most twice a second."""

    def __init__(self, work: Any, path: str | None) -> None:
        self._work = work
        self._path = path
        self._written = 0.0

    def __call__(self, work: Any) -> None:
        if self._path is not None and time.monotonic() - self._written > 0.5:
            self._written = time.monotonic()
            self._write("running", "")
        del work

    def end(self, state: str, error: str = "") -> None:
        if self._path is not None:
            self._write(state, error)

    def _write(self, state: str, error: str) -> None:
        from ottla.pipelines.status import pipeline_status
        from ottla.pipelines.supervisor import write_json

        write_json(str(self._path), pipeline_status(self._work, state, error))


def _in_sequence(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def call(work: Any) -> None:
        first(work)
        second(work)

    return call


def _stop_on_signals(work: Any) -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: work.stop())


def _pairs(option: str, pair_texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for pair_text in pair_texts:
        name, separator, value = pair_text.partition("=")
        if not separator:
            raise click.UsageError(f"{option} {pair_text!r} is not NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _words_again(context: click.Context) -> list[str]:
    """The options of `start`, as words for `run`."""
    names = {
        "bootstrap_servers": "--bootstrap-servers", "master": "--master", "remote": "--remote", "checkpoints": "--checkpoints",
        "max_offsets_per_trigger": "--max-offsets-per-trigger", "spark_log": "--spark-log", "source_format": "--format",
    }  # fmt: skip
    words: list[str] = []
    for parameter, option in names.items():
        if context.params.get(parameter) is not None:
            words += [option, str(context.params[parameter])]
    for value in context.params["properties"]:
        words += ["--property", value]
    for value in context.params["spark_settings"]:
        words += ["--conf", value]
    return [*words, "--at-least-once"] if context.params["at_least_once"] else words
