"""`ottla example`: run a whole pipeline with one command, see its code, copy it.

The table of commands names this module as text, so the command line imports no example.
"""

from __future__ import annotations

import click

from ottla.cli.options.client_options import SERVERS, servers_option
from ottla.examples.catalogue import EXAMPLES, FILES, Example, example_of

_NAMES = max(map(len, EXAMPLES))


@click.command()
@click.argument("name", required=False)
@click.option("--events", type=click.IntRange(1), metavar="N", help="Events to write (default: 20,000).")
@click.option("--master", default="local[*]", show_default=True, help="Spark master: local[*], spark://HOST:7077, ...")
@servers_option(None, "Use these brokers, as HOST:PORT,..., instead of a log that ends with the example.")
@click.option("--keep", metavar="DIR", help="Keep the tables of the example in this directory.")
@click.option("--show", is_flag=True, help="Print the pipeline file and where it is, and run nothing.")
@click.option("--feed", is_flag=True, help="Write the topics and events of the example, and run nothing else.")
@click.option("--copy", metavar="DIR", help="Copy the files of the example into DIR/NAME, and run nothing.")
def example(
    name: str | None,
    events: int | None,
    master: str,
    bootstrap_servers: str | None,
    keep: str | None,
    show: bool,  # noqa: FBT001 - click passes flags so
    feed: bool,  # noqa: FBT001 - click passes flags so
    copy: str | None,
) -> None:
    r"""Run an example: a log, events, a pipeline on Spark and its results. Without NAME, list the examples.

    The command compares every result with a computation without Spark; exit code 0 means that all results are equal.

    \b
    Examples:
      ottla example
      ottla example films
      ottla example films --show
    """
    if name is None:
        for entry in EXAMPLES.values():
            click.echo(f"{entry.name:<{_NAMES}}  {entry.sentence}")
        return
    chosen = example_of(name)
    if show:
        click.echo(f"# {chosen.folder / FILES[0]}")
        click.echo((chosen.folder / FILES[0]).read_text(encoding="utf-8"), nl=False)
    elif copy is not None:
        target = chosen.copy_to(copy)
        click.echo(
            f"{', '.join(FILES)} are in {target}: `ottla example {chosen.name} --feed` writes the events into "
            f"{SERVERS}, and `ottla pipeline run {target / FILES[0]}` runs the pipeline"
        )
    elif feed:
        _feed(chosen, bootstrap_servers or SERVERS, events or chosen.default_events)
    else:
        _run(chosen, events, master, bootstrap_servers, keep)


def _feed(example: Example, servers: str, events: int) -> None:
    from ottla.examples.feeding import Feeder, create_topics

    create_topics(servers, example)
    feeder = Feeder(servers, example.events(events))
    feeder.start()
    feeder.join()
    click.echo(f"{feeder.written:,} records are in {', '.join(example.topics)}")


def _run(example: Example, events: int | None, master: str, servers: str | None, keep: str | None) -> None:
    from rich.console import Console

    from ottla.examples.running import ExampleRequest, run

    run(
        ExampleRequest(
            example=example, events=events or example.default_events, master=master, servers=servers, keep=keep
        ),
        Console(),
    )
