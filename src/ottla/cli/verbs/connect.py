"""`ottla connect`: connectors from configuration files, with Kafka Connect's names and no JVM."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading

import click

from ottla.cli.options.client_options import pairs, property_option, servers_option
from ottla.cli.options.profile_option import profiled, words_again
from ottla.cli.options.settings_file import settings_option


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def connect() -> None:
    r"""Run connectors that copy files and databases into topics, and topics into tables, each record exactly once.

    \b
    Examples:
      ottla connect run orders-source.yaml orders-sink.yaml
    """


@connect.command()
@click.argument("files", nargs=-1, required=True)
@servers_option()
@property_option()
@profiled
@settings_option("bootstrap-servers: ..., property.sasl.password: ...")
@click.option("--once", is_flag=True, help="Stop when no record is left to copy.")
@click.option(
    "--state",
    metavar="DIR",
    help="Directory for status files, which the console reads (default: $OTTLA_STATE or .ottla/pipelines).",
)
def run(
    *, files: tuple[str, ...], bootstrap_servers: str, properties: tuple[str, ...], once: bool, state: str | None
) -> None:
    r"""Run the connectors of the configuration FILES (YAML or JSON) here, until Ctrl-C.

    A connector that fails is restarted after a pause, at most five times; the other connectors keep running.

    \b
    Example:
      name: access-log
      connector.class: file-source
      file: /var/log/nginx/access.log
      topic: access-log
    """
    from ottla.cli.connectors.runs import ConnectorRun, Outage
    from ottla.cli.connectors.status import ConnectorStatus
    from ottla.cli.options.profiles import Profile
    from ottla.cli.options.reachability import check_login, wait_for_listener
    from ottla.connect.clients import quiet
    from ottla.connect.config import connector_class, load_config

    client = {"bootstrap.servers": bootstrap_servers, **pairs("--property", properties)}
    stopping = threading.Event()
    configs = [load_config(path) for path in files]
    for config in configs:
        connector_class(config)
    wait_for_listener(bootstrap_servers)
    check_login(Profile(bootstrap_servers, properties=client))
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: stopping.set())
    outage = Outage(bootstrap_servers, stopping)
    runs = []
    for path, config in zip(files, configs, strict=True):
        status = ConnectorStatus(state, config, _words_again(path, state))
        runs.append(ConnectorRun(config, quiet(client), status, stopping.is_set))
    if not once:
        outage.begin()
    threads = []
    for run_ in runs:
        target = run_.once if once else functools.partial(run_.until_stopped, outage)
        threads.append(threading.Thread(target=target, name=run_.name))
        threads[-1].start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    for run_ in runs:
        if not run_.error:
            click.echo(f"{run_.name}: {run_.count:,} records")
    sys.exit(1 if any(run_.error for run_ in runs) else 0)


def _words_again(path: str, state: str | None) -> list[str]:
    """The command line that starts this connector alone."""
    own = click.get_current_context().params
    words = [os.path.abspath(path), *words_again(own["profile"], own["bootstrap_servers"])]
    for pair in own["properties"]:
        words += ["--property", pair]
    return words if state is None else [*words, "--state", os.path.abspath(state)]
