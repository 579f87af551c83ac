"""`ottla storage random-uuid|format|info`: Kafka's storage tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group()
def storage() -> None:
    r"""Generate ids, format log directories and show their state.

    \b
    Examples:
      ottla storage format -t "$(ottla storage random-uuid)" -c server.properties --standalone
      ottla storage info -c server.properties
    """


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new random id."""
    from ottla.server.formatting.storage import random_uuid as new_id

    click.echo(new_id())


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
def format_(
    cluster_id: str,
    file: Path,
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
    sys.exit(format_from_file(file, options, strict=strict))


@storage.command("info")
@click.option(
    "-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Path of the server.properties file."
)
def info(file: Path) -> None:
    """Show whether the log directories of a server.properties file are formatted, and for which cluster."""
    from ottla.server.formatting.format_command import info_from_file

    sys.exit(info_from_file(file))
