"""`ottla shims DIR`: Apache Kafka's tools under their own names, each a two-line script that calls this Python."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ottla.cli.kafka.table import TOOLS


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--only", multiple=True, metavar="NAME", help="Write only this tool, such as topics; may be repeated.")
def shims(directory: Path, only: tuple[str, ...]) -> None:
    r"""Write Kafka's command-line tools (kafka-topics.sh, kafka-topics, ...) into a folder.

    \b
    Example:
      ottla shims ~/kafka/bin
      export PATH=~/kafka/bin:$PATH
      kafka-topics.sh --bootstrap-server localhost:9092 --list
    """
    unknown = [name for name in only if name not in TOOLS]
    if unknown:
        raise click.ClickException(f"there is no tool {unknown[0]!r}; tools are {', '.join(sorted(TOOLS))}")
    count = write_shims(directory, only or tuple(TOOLS))
    click.echo(f"Wrote {count} tools to {directory}.")


def write_shims(directory: Path, names: tuple[str, ...] = tuple(TOOLS)) -> int:
    """Both spellings of each tool; scripts that are there already are replaced, other files are left alone."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        for program in (f"kafka-{name}", f"kafka-{name}.sh"):
            path = directory / program
            path.write_text(_script(name))
            path.chmod(0o755)
    return len(names)


def _script(name: str) -> str:
    python = shlex.quote(sys.executable)
    return f'#!/bin/sh\n# Written by `ottla shims`.\nexec {python} -P -m ottla.cli.kafka {name} "$@"\n'
