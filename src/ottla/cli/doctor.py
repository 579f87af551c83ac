"""`ottla doctor`: what is wrong with a connection or a cluster, and what to do about it. Exit code 1 when something is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.connecting import Target
    from ottla.cli.findings import Finding

_MARKS = {"error": ("x", "red"), "warning": ("!", "yellow"), "ok": ("ok", "green")}


@click.command()
@click.option(
    "--lag", type=click.IntRange(1), default=100_000, show_default=True, help="A group this far behind is reported."
)
@click.option(
    "--timeout", type=click.FloatRange(0.1, 120), default=5.0, show_default=True, help="Seconds for each step."
)
@connected
def doctor(target: Target, lag: int, timeout: float) -> None:
    r"""Check the way to a cluster, then the cluster.

    \b
    Examples:
      ottla doctor
      ottla doctor -b broker:9093 -X security.protocol=SSL
      ottla doctor --profile prod -o json
    """
    from ottla.cli.showing import show_tree

    found = examine(target, lag, timeout)
    if target.output == "table":
        for one in found:
            _print(one)
    else:
        show_tree([one._asdict() for one in found], target.output)
    if any(one.level == "error" for one in found):
        sys.exit(1)


def examine(target: Target, lag: int, timeout: float) -> list[Finding]:
    from ottla.cli.doctor_cluster import check_cluster
    from ottla.cli.doctor_connection import Reached, check_connection

    reached = Reached()
    found = list(check_connection(target.profile, reached, timeout))
    if reached.metadata is not None:
        with target.cluster() as cluster:
            found += check_cluster(cluster, lag)
    return found


def _print(one: Finding) -> None:
    from ottla.cli.showing import styled

    mark, colour = _MARKS[one.level]
    click.echo(f"{styled(f'{mark:>2}', fg=colour, bold=True)} {one.name}: {one.seen}")
    if one.fix:
        click.echo(f"   fix: {one.fix}")
