"""`ottla up`: a log on this machine with one command."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), default=Path(".ottla"), show_default=True,
              help="Where the data and the server.properties live.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option("--port", default=9092, show_default=True, help="The port for clients; the controller takes the next.")
def up(directory: Path, host: str, port: int) -> None:
    r"""Start a log on this machine: made and formatted on the first run, found again on the next.

    \b
    Examples:
      ottla up
      ottla up --dir /var/lib/ottla --port 19092
    """
    from ottla.server.up import up as start

    sys.exit(start(directory, host, port))
