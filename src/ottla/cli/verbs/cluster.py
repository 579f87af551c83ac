"""`ottla cluster`: its nodes, its quorum, and moves of partitions between nodes.

The command requests a few moves at a time and waits until they are done. The remaining moves are always read from the
cluster, so a repeated command continues where an interrupted command stopped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.combinations import refuse_together
from ottla.cli.options.connecting import located
from ottla.cli.options.output_format import output_option

if TYPE_CHECKING:
    from ottla.cli.options.profiles import Profile
    from ottla.client.balancing import Assignment
    from ottla.client.cluster import Cluster
    from ottla.client.reassignments import ClusterView

_output = output_option("table", "json")
_at_once = click.option(
    "--at-once", default=20, show_default=True, help="Number of partitions that move at the same time."
)


_yes = click.option("--yes", is_flag=True, help="Do not ask before a change after which writes may be refused.")


@click.group()
def cluster() -> None:
    r"""Look at a cluster and move partitions between its nodes.

    \b
    Examples:
      ottla cluster status
      ottla cluster drain 2
      ottla cluster reassign orders:0 --replicas 2,3,1
    """


@cluster.command()
@located
@_output
def status(where: Profile, output: str) -> None:
    """Show the nodes, the spread of replicas and leaders, and partitions with problems.

    The exit code is 1 if a node is gone or a partition has no leader or too few replicas in sync.
    """

    def show(connected: Cluster) -> None:
        from ottla.cli.cluster.tables import status_report, status_table

        report = status_report(connected)
        click.echo(json.dumps(report, indent=2)) if output == "json" else status_table(report)
        if not report["healthy"]:
            sys.exit(1)

    _with_cluster(where, show)


@cluster.command()
@located
@_output
def quorum(where: Profile, output: str) -> None:
    """Show the controllers: the leader, and how far the others have replicated."""

    def show(connected: Cluster) -> None:
        from ottla.cli.cluster.tables import quorum_report, quorum_table

        report = quorum_report(connected)
        click.echo(json.dumps(report, indent=2)) if output == "json" else quorum_table(report)

    _with_cluster(where, show)


@cluster.command()
@located
@_at_once
@_output
@click.argument("node", type=int)
@click.option("--allow-fewer", is_flag=True, help="Remove replicas that no other node has room for.")
@_yes
def drain(where: Profile, at_once: int, output: str, node: int, *, allow_fewer: bool, yes: bool) -> None:
    """Move all replicas off NODE while clients keep working.

    After an interruption, call the command again to continue.
    """

    def run(connected: Cluster) -> None:
        from ottla.cli.terminal.output import report
        from ottla.client.balancing import plan_drain
        from ottla.client.reassignments import view

        seen = view(connected)
        held = sum(node in replicas for replicas in seen.replicas.values())
        if not held and node not in seen.addresses:
            raise click.ClickException(f"there is no node {node} in this cluster: it has {sorted(seen.addresses)}")

        def plan(now: ClusterView) -> Assignment:
            return plan_drain(now.brokers, now.replicas, node, allow_fewer=allow_fewer)

        _confirm_refused_writes(connected, seen.replicas, plan(seen), yes=yes)
        _move(connected, plan, at_once, f"draining node {node}")
        report(f"node {node} holds no replicas", output, {"node": node, "replicas": 0})

    _with_cluster(where, run)


@cluster.command()
@located
@_at_once
@_output
def balance(where: Profile, at_once: int, output: str) -> None:
    """Spread replicas and leaders evenly over the nodes."""

    def run(connected: Cluster) -> None:
        from ottla.cli.terminal.output import report
        from ottla.client.balancing import plan_balance
        from ottla.client.reassignments import elect_preferred, view

        _move(connected, lambda now: plan_balance(now.brokers, now.replicas), at_once, "balancing")
        now = view(connected)
        wrong = [
            p for p, replicas in now.replicas.items() if now.leaders[p] != replicas[0] and replicas[0] in now.isr[p]
        ]
        changed = elect_preferred(connected, wrong)
        report(f"balanced; {changed} leaders changed", output, {"leaders_changed": changed})

    _with_cluster(where, run)


@cluster.command()
@located
@_at_once
@click.argument("target", required=False)
@click.option("--replicas", help="Node ids of the new replicas, the preferred leader first: 1,2,3.")
@click.option("--factor", type=click.IntRange(1, 100), help="New replication factor; this command chooses the nodes.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True),
    help="File with a plan in the JSON of kafka-reassign-partitions.",
)
@click.option(
    "--cancel",
    is_flag=True,
    help="Cancel running reassignments of TARGET, or of all topics, and restore the old replicas.",
)
@_yes
@_output
def reassign(
    where: Profile,
    at_once: int,
    output: str,
    target: str | None,
    replicas: str | None,
    factor: int | None,
    file: Path | None,
    *,
    cancel: bool,
    yes: bool,
) -> None:
    r"""Give TARGET (TOPIC or TOPIC:PARTITION) other replicas.

    \b
    Examples:
      ottla cluster reassign orders:0 --replicas 2,3,1
      ottla cluster reassign orders --factor 3
      ottla cluster reassign --file plan.json
    """
    chosen = [option for option in (replicas, factor, file, cancel or None) if option is not None]
    if len(chosen) != 1:
        raise click.UsageError("give one of --replicas, --factor, --file or --cancel")
    refuse_together("TARGET", target, "--file", file, "the plan names its partitions")

    def run(connected: Cluster) -> None:
        from ottla.cli.cluster.plans import chosen_partitions, planner
        from ottla.cli.terminal.output import report
        from ottla.client.reassignments import cancel as stop
        from ottla.client.reassignments import view

        if cancel:
            seen = view(connected)
            moving = sorted(seen.moving if target is None else seen.moving & {*chosen_partitions(seen, target)})
            stop(connected, moving)
            report(f"cancelled {len(moving)} reassignments", output, {"cancelled": len(moving)})
            return
        seen = view(connected)
        plan = planner(seen, target, replicas, factor, file)
        planned = plan(seen)
        _confirm_refused_writes(connected, seen.replicas, planned, yes=yes)
        _move(connected, plan, at_once, "reassigning")
        after = view(connected).replicas
        factors = sorted({len(after[partition]) for partition in planned if partition in after})
        words = " or ".join(map(str, factors))
        text = f"{len(planned)} partitions were moved, each has {words} replicas" if planned else "nothing to move"
        report(text, output, {"moved": len(planned), "factors": factors})

    _with_cluster(where, run)


def _confirm_refused_writes(connected: Cluster, current: Assignment, plan: Assignment, *, yes: bool) -> None:
    """Asks before a plan removes replicas of a topic that then has fewer than its min.insync.replicas."""
    from ottla.client.configs import ConfigResourceType, describe_configs

    fewest: dict[str, int] = {}
    for partition, replicas in plan.items():
        if len(replicas) < len(current.get(partition, ())):
            topic = partition[0]
            fewest[topic] = min(len(replicas), fewest.get(topic, len(replicas)))
    configs = describe_configs(connected, ConfigResourceType.TOPIC, sorted(fewest)) if fewest else {}
    refused = []
    for topic, rows in configs.items():
        needed = next((int(row.value or 1) for row in rows if row.name == "min.insync.replicas"), 1)
        if fewest[topic] < needed:
            refused.append(f"{topic} (min.insync.replicas={needed}, {fewest[topic]} replicas planned)")
    if refused:
        click.echo(
            f"Writes with acks=all will be refused in {', '.join(refused)}: "
            "set min.insync.replicas of these topics first (ottla config set topic NAME min.insync.replicas=1).",
            err=True,
        )
        if not yes:
            click.confirm("Change the replicas all the same?", abort=True, err=True)


def _move(connected: Cluster, plan: Callable[[ClusterView], Assignment], at_once: int, title: str) -> None:
    from ottla.cli.cluster.moves import move

    move(connected, plan, max(at_once, 1), title)


def _with_cluster(where: Profile, run: Callable[[Cluster], Any]) -> None:
    """Prints one line for an error of the cluster, with exit code 1."""
    from ottla.cli.options.reachability import open_cluster
    from ottla.client.balancing import ImpossiblePlan
    from ottla.client.errors import ClientError
    from ottla.model.errors import KafkaError

    try:
        with open_cluster(where) as connected:
            run(connected)
    except KafkaError as error:
        click.echo(f"ottla: {error.code.name}: {error.message}", err=True)
        sys.exit(1)
    except (ClientError, ImpossiblePlan) as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
