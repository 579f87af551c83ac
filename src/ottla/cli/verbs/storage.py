"""`ottla storage random-uuid|format|info`: Kafka's storage tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group()
def storage() -> None:
    r"""Make ids, format log directories, look at them.

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
@click.option("-t", "--cluster-id", required=True, help="The cluster's id; `ottla storage random-uuid` makes one.")
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="The server.properties.")
@click.option("-s", "--standalone", is_flag=True, help="This node is the first controller of a new quorum.")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="A node that joins an existing dynamic quorum.")
@click.option("-I", "--initial-controllers", help="ID@HOST:PORT:DIRECTORY_ID,... of the first quorum.")
@click.option("-r", "--release-version", help="The metadata version to start with, such as 4.3.")
@click.option("-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="A feature's first level.")
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[name=N,password=P,...]",
    help="A first SCRAM user; passwordfile=FILE keeps the password out of the process list.",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave directories alone that are formatted already.")
@click.option(
    "--strict", is_flag=True, help="Refuse properties that Kafka does not know; without this they are warnings."
)
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
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="The server.properties.")
def info(file: Path) -> None:
    """Print what the log directories of a server.properties file are."""
    from ottla.server.formatting.format_command import info_from_file

    sys.exit(info_from_file(file))
