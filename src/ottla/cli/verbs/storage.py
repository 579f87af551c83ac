"""`ottla storage random-uuid|format|info`: Kafka's storage tool."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import click

from ottla.cli.options.output_format import output_option

_output = output_option("table", "json")


@click.group()
def storage() -> None:
    r"""Generate ids, format log directories and show their state.

    \b
    Examples:
      ottla storage format -t "$(ottla storage random-uuid)" -c server.properties --standalone
      ottla storage info -c server.properties
    """


@storage.command("random-uuid")
@_output
def random_uuid(output: str) -> None:
    """Print a new random id."""
    from ottla.cli.terminal.output import report
    from ottla.server.formatting.storage import random_uuid as new_id

    new_uuid = new_id()
    report(new_uuid, output, {"id": new_uuid})


@storage.command("format")
@click.option(
    "-t", "--cluster-id", required=True, help="Id of the cluster; `ottla storage random-uuid` prints a new id."
)
@click.option(
    "-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Path of the server.properties file."
)
@click.option("-s", "--standalone", is_flag=True, help="Format this node as the first controller of a new quorum.")
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="Format a node that joins an existing dynamic quorum."
)
@click.option("-I", "--initial-controllers", help="Controllers of the new quorum, as ID@HOST:PORT:DIRECTORY_ID,...")
@click.option("-r", "--release-version", help="Release whose metadata version the cluster starts with, such as 4.3.")
@click.option(
    "-f",
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="Initial level of a feature; may be repeated.",
)
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[name=N,password=P,...]",
    help="SCRAM user to create; passwordfile=FILE keeps the password out of the process list.",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted.")
@click.option("--strict", is_flag=True, help="Refuse unknown properties; without this flag they are warnings.")
@_output
def format_(
    cluster_id: str,
    file: Path,
    output: str,
    standalone: bool,  # noqa: FBT001 - click passes flags so
    no_initial_controllers: bool,  # noqa: FBT001 - as above
    initial_controllers: str | None,
    release_version: str | None,
    features: tuple[str, ...],
    scram: tuple[str, ...],
    ignore_formatted: bool,  # noqa: FBT001 - as above
    strict: bool,  # noqa: FBT001 - as above
) -> None:
    r"""Prepare the log directories of a server.properties file.

    \b
    Example:
      ottla storage format -t "$(ottla storage random-uuid)" -c server.properties --standalone
    """
    from ottla.server.formatting.format_command import FormatOptions, format_from_file

    options = FormatOptions(
        cluster_id=cluster_id,
        standalone=standalone,
        no_initial_controllers=no_initial_controllers,
        initial_controllers=initial_controllers,
        release_version=release_version,
        features=features,
        scram=scram,
        ignore_formatted=ignore_formatted,
    )
    sys.exit(_lines(output, lambda: format_from_file(file, options, strict=strict)))


@storage.command("info")
@click.option(
    "-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Path of the server.properties file."
)
@_output
def info(file: Path, output: str) -> None:
    """Show whether the log directories of a server.properties file are formatted, and for which cluster."""
    from ottla.server.formatting.format_command import info_from_file

    sys.exit(_lines(output, lambda: info_from_file(file)))


def _lines(output: str, command: Callable[[], int]) -> int:
    """The exit code. In JSON the lines are those that Kafka's storage tool prints."""
    if output == "table":
        return command()
    from ottla.cli.terminal.output import show_tree

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = command()
    show_tree({"exit_code": code, "lines": printed.getvalue().splitlines()}, output)
    return code
