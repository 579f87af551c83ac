"""`ottla server start FILE`: one node from Kafka's own property names."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group()
def server() -> None:
    r"""Run one node from a server.properties file.

    \b
    Examples:
      ottla server start server.properties
    """


@server.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property, replacing the value in the file.",
)
@click.option("--strict", is_flag=True, help="Refuse unknown properties; without this flag they are warnings.")
def start(file: Path, overrides: tuple[str, ...], strict: bool) -> None:  # noqa: FBT001 - click passes flags so
    r"""Start a node and run until SIGTERM or Ctrl-C.

    \b
    Example:
      ottla storage format -t "$(ottla storage random-uuid)" -c server.properties --standalone
      ottla server start server.properties
    """
    from ottla.server.run import run_from_file

    sys.exit(run_from_file(file, overrides, strict=strict))
