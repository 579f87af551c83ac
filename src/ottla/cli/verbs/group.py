"""`ottla group`: consumer groups, their lag, and where they start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.completions import group_names, topic_names
from ottla.cli.options.connecting import connected
from ottla.model.marker_groups import is_marker_group
from ottla.model.peer_text import visible

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target


@click.group()
def group() -> None:
    r"""List, describe, reset and delete groups.

    \b
    Examples:
      ottla group list
      ottla group describe billing
      ottla group reset billing orders --to -10m --execute
    """


@group.command("list")
@click.option("--all", "all_groups", is_flag=True, help="List the groups of exactly-once writes too.")
@connected
def list_(target: Target, all_groups: bool) -> None:  # noqa: FBT001 - click passes flags so
    """List groups, with type and state."""
    from ottla.cli.terminal.output import show
    from ottla.client.groups import list_groups

    with target.cluster() as cluster:
        rows = [
            {
                "group": group_row.group_id,
                "type": group_row.group_type,
                "state": group_row.group_state,
                "protocol": group_row.protocol_type,
            }
            for group_row in sorted(list_groups(cluster), key=lambda group_row: group_row.group_id)
            if all_groups or not is_marker_group(group_row.group_id)
        ]
    show(rows, target.output)


@group.command()
@click.argument("name", shell_complete=group_names)
@connected
def describe(target: Target, name: str) -> None:
    """Show a group's members, offsets and lag."""
    from ottla.cli.terminal.output import show, show_tree
    from ottla.client.group_lag import partition_lags
    from ottla.client.groups import committed_offsets, describe_group

    with target.cluster() as cluster:
        described_group = describe_group(cluster, name)
        committed = committed_offsets(cluster, name)
        owners = {place: member for member in described_group.members for place in member.assignment}
        lags = partition_lags(cluster, committed, owners)
    rows = []
    for place in sorted({*committed, *owners}):
        end, lag = lags.get(place, (None, None))
        rows.append({
            "topic": place[0], "partition": place[1], "offset": committed.get(place), "end": end,
            "lag": lag.records if lag is not None else None,
            "behind_s": lag.seconds if lag is not None else None,
            "counts_from": "commit" if place in committed else "start",
            "member": owners[place].client_id if place in owners else None,
            "host": owners[place].host if place in owners else None,
        })  # fmt: skip
    lag_sum = sum(lag.records for _, lag in lags.values())
    if target.output != "table":
        show_tree(
            {
                "group": name,
                "state": described_group.state,
                "lag": lag_sum,
                "members": len(described_group.members),
                "partitions": rows,
            },
            target.output,
        )
        return
    click.echo(f"{visible(name)}  {described_group.state}  {len(described_group.members)} members  lag {lag_sum}")
    show(rows, "table")
    if lags.keys() - committed.keys():
        click.echo(
            "counts_from start: the group has no commit there, so the lag counts from the partition's start", err=True
        )


@group.command()
@click.argument("name", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--to", "where", required=True, metavar="WHERE", help="New position: beginning, end, an offset, -10m, or a date."
)
@click.option("--execute", is_flag=True, help="Reset the offsets; without this flag the command only prints the plan.")
@connected
def reset(target: Target, name: str, topic: str, where: str, execute: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Set the committed offsets of a group that has no members."""
    from ottla.cli.kafka.consumer_groups_reset import by_time, in_range
    from ottla.cli.records.start_position import parse_when
    from ottla.cli.terminal.output import show
    from ottla.client.groups import commit_offsets
    from ottla.client.offsets import offsets_or_raise
    from ottla.client.topics import leaders_of
    from ottla.protocol.offset_timestamps import EARLIEST, LATEST

    moment = parse_when(where)
    if moment.stored:
        raise click.UsageError(
            "--to stored is the group's current position: choose beginning, end, an offset or a time"
        )
    with target.cluster() as cluster:
        places = sorted(leaders_of(cluster, [topic]))
        if moment.offset is not None:
            plan = in_range(cluster, dict.fromkeys(places, moment.offset))
        elif moment.timestamp_ms is not None:
            plan = by_time(cluster, places, moment.timestamp_ms)
        else:
            when = EARLIEST if moment.beginning else LATEST
            plan = {place: row.offset for place, row in offsets_or_raise(cluster, dict.fromkeys(places, when)).items()}
        if execute:
            commit_offsets(cluster, name, plan)
    show(
        [{"topic": place[0], "partition": place[1], "offset": offset} for place, offset in sorted(plan.items())],
        target.output,
    )
    if not execute:
        click.echo("no offset was changed: add --execute to apply this plan", err=True)


@group.command()
@click.argument("names", shell_complete=group_names, nargs=-1, required=True)
@connected
def delete(target: Target, names: tuple[str, ...]) -> None:
    """Delete groups that have no members."""
    from ottla.cli.terminal.output import show_tree
    from ottla.client.groups import delete_group

    with target.cluster() as cluster:
        for name in names:
            delete_group(cluster, name)
            if target.output == "table":
                click.echo(f"deleted {name}")
    if target.output != "table":
        show_tree({"deleted": list(names)}, target.output)
