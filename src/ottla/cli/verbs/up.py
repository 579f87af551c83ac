"""`ottla up`: a log on this machine with one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from ottla.cli.options.combinations import is_set, refuse_together
from ottla.cli.options.web_options import allow_open_option

PORT = click.IntRange(0, 65_535)
MAX_PORT = 65_533


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), default=Path(".ottla"), show_default=True,
              help="Directory for the data and the server.properties file.")  # fmt: skip
@click.option("--host", show_default="127.0.0.1",
              help="Address to listen on and to advertise; 0.0.0.0 advertises the machine's name.")  # fmt: skip
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    show_default="9092",
    help="Port for clients; the controller and the metrics use the next two ports. 0 chooses free ports.",
)
@click.option("--nodes", type=click.IntRange(1, 100), default=1, show_default=True,
              help="Number of nodes, each in a separate process on the following ports.")  # fmt: skip
@click.option("--registry/--no-registry", default=True, show_default=True, help="Start a schema registry too.")
@click.option("--registry-port", type=PORT, default=8081, show_default=True, help="Port of the schema registry.")
@click.option("--console/--no-console", default=True, show_default=True, help="Start the web console too.")
@click.option("--console-port", type=PORT, default=8080, show_default=True, help="Port of the web console.")
@click.option("--secure", is_flag=True, help="TLS, logins and access rules, for a new directory and one node: "
              "prints settings for clients.")  # fmt: skip
@click.option("--ephemeral", is_flag=True,
              help="Use a temporary directory and free ports; stop when the standard input closes, and remove the directory.")  # fmt: skip
@click.option("--print-json", is_flag=True,
              help="With --ephemeral: print one JSON line with the addresses when everything answers, and nothing else.")  # fmt: skip
@allow_open_option
def up(
    *,
    directory: Path,
    host: str | None,
    port: int | None,
    nodes: int,
    registry: bool,
    registry_port: int,
    console: bool,
    console_port: int,
    secure: bool,
    ephemeral: bool,
    print_json: bool,
    allow_open: bool,
) -> None:
    r"""Start a log on this machine. The first run creates and formats the directory; later runs use it.

    \b
    Examples:
      ottla up
      ottla up --dir /var/lib/ottla --port 19092
      ottla up --nodes 3
      ottla up --secure
      ottla up --ephemeral --print-json
    """
    refuse_together(
        "--no-registry", not registry, "--registry-port", registry_port if is_set("registry_port") else None
    )
    refuse_together("--no-console", not console, "--console-port", console_port if is_set("console_port") else None)
    if ephemeral:
        _up_ephemeral(nodes, registry=registry, console=console, print_json=print_json)
    if print_json:
        raise click.UsageError("--print-json needs --ephemeral")
    beside: Any = {
        "registry_port": registry_port if registry else None,
        "console_port": console_port if console else None,
    }
    refuse_together("--secure", secure, "--nodes", nodes if nodes > 1 else None, "a secure log has one node")
    if nodes > 1:
        from ottla.server.up.cluster import up_cluster

        sys.exit(up_cluster(directory, host, port, nodes, allow_open=allow_open, **beside))
    from ottla.server.up.single import up as start

    sys.exit(start(directory, host, port, allow_open=allow_open, secure=secure, **beside))


def _up_ephemeral(nodes: int, *, registry: bool, console: bool, print_json: bool) -> NoReturn:
    from ottla.server.up.ephemeral import up_ephemeral

    for name in ("directory", "host", "port", "registry_port", "console_port", "secure", "allow_open"):
        if is_set(name):
            option = "--dir" if name == "directory" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"--ephemeral and {option} cannot be combined")
    sys.exit(up_ephemeral(nodes, registry=registry, console=console, print_json=print_json))
