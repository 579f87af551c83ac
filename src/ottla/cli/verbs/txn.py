"""`ottla txn`: transactions that are open, and ending those that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import connected

if TYPE_CHECKING:
    from ottla.cli.options.connecting import Target


@click.group()
def txn() -> None:
    r"""List, describe and terminate transactions.

    \b
    Examples:
      ottla txn list --longer-than 60
      ottla txn terminate payments-7
    """


@txn.command("list")
@click.option(
    "--longer-than",
    type=click.IntRange(0),
    default=0,
    help="List only transactions that are open for more than this number of seconds.",
)
@connected
def list_(target: Target, longer_than: int) -> None:
    """List transactional ids and their states."""
    from ottla.cli.terminal.output import show
    from ottla.client.transactions import list_transactions

    with target.cluster() as cluster:
        rows = [
            {
                "id": row.transactional_id,
                "state": row.transaction_state,
                "producer": row.producer_id,
                "coordinator": node,
            }
            for node, row in list_transactions(cluster, duration_ms=longer_than * 1000 if longer_than else -1)
        ]
    show(rows, target.output)


@txn.command()
@click.argument("transactional_id")
@connected
def describe(target: Target, transactional_id: str) -> None:
    """Show state, age and partitions of a transactional id."""
    import time

    from ottla.cli.terminal.output import show
    from ottla.client.transactions import describe_transaction

    with target.cluster() as cluster:
        node, state = describe_transaction(cluster, transactional_id)
    started = state.transaction_start_time_ms
    row = {
        "id": state.transactional_id,
        "state": state.transaction_state,
        "producer": f"{state.producer_id}/{state.producer_epoch}",
        "open for s": round(time.time() - started / 1000, 1) if started >= 0 else None,
        "timeout s": state.transaction_timeout_ms / 1000,
        "coordinator": node,
        "partitions": [f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions],
    }
    show([row], target.output)


@txn.command()
@click.argument("transactional_id")
@connected
def terminate(target: Target, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, and fence its producer."""
    from ottla.cli.terminal.output import report
    from ottla.client.transactions import terminate_transaction

    with target.cluster() as cluster:
        terminate_transaction(cluster, transactional_id)
    report(f"{transactional_id}: aborted and fenced", target.output, {"id": transactional_id, "state": "aborted"})
