"""`ottla top`: the overview in a terminal, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ottla.cli.options.connecting import located
from ottla.model.peer_text import visible

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from ottla.cli.options.profiles import Profile
    from ottla.console.cluster.history import History
    from ottla.console.cluster.snapshot import ClusterSnapshot


@click.command()
@located
@click.option(
    "--every", default=2.0, show_default=True, type=click.FloatRange(0.2, 60), help="Seconds between updates."
)
@click.option("--count", default=0, help="Stop after this number of updates; 0 runs until Ctrl-C.")
@click.option("--all", "all_groups", is_flag=True, help="Show the groups of exactly-once writes too.")
def top(where: Profile, every: float, count: int, all_groups: bool) -> None:  # noqa: FBT001 - click passes flags so
    r"""Show brokers, the busiest topics and the groups with the largest lag, live.

    \b
    Examples:
      ottla top
      ottla top -b broker:9092
    """
    from rich.live import Live

    from ottla.cli.options.reachability import open_cluster
    from ottla.client.errors import ClientError
    from ottla.client.group_lag import UnreadTimes
    from ottla.console.cluster.collect import collect
    from ottla.console.cluster.history import History
    from ottla.model.errors import KafkaError

    history, unread, looks = History(), UnreadTimes(), 0
    try:
        with (
            open_cluster(where, "10000") as cluster,
            Live(auto_refresh=False, screen=sys.stdout.isatty() and not count) as live,
        ):
            while True:
                snapshot = collect(cluster, unread, marker_groups=all_groups)
                history.add(snapshot)
                live.update(screen(snapshot, history), refresh=True)
                looks += 1
                if looks == count:
                    return
                time.sleep(every)
    except KeyboardInterrupt:
        return
    except (ClientError, KafkaError) as error:
        click.echo(f"ottla top: {error}", err=True)
        sys.exit(1)


def _table(title: str, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    """On a narrow terminal the texts are folded; numbers stay whole."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def screen(snapshot: ClusterSnapshot, history: History) -> Group:
    from rich.console import Group
    from rich.markup import escape

    from ottla.console.render import count as number
    from ottla.console.render import size, span

    brokers = _table("Brokers", ("broker", "address"), ("leads", "holds", "size", "disk free"))
    for row in snapshot.brokers:
        role = f"{row.id} *" if row.id == snapshot.controller_id else str(row.id)
        brokers.add_row(
            role, f"{row.host}:{row.port}", str(row.leaders), str(row.replicas), size(row.size), size(row.disk_free)
        )
    topics = _table("Topics", ("topic", "state"), ("parts", "records", "records/s", "size"))
    rated = sorted(
        (((history.written_by_topic[t.name].rate() or 0.0) if t.name in history.written_by_topic else 0.0), t.name)
        for t in snapshot.topics.values()
        if not t.internal
    )[::-1]
    for rate, name in rated[:10]:
        topic = snapshot.topics[name]
        state = "no leader" if topic.leaderless else "under-replicated" if topic.under_replicated else "well"
        topics.add_row(name, state, str(len(topic.partitions)), number(topic.records), number(rate), size(topic.size))
    groups = _table("Groups", ("group", "kind", "state"), ("lag", "behind by"))
    lags = sorted(((lag, name) for name, lag in history.lags(snapshot).items()), key=lambda p: -p[0].records)
    for lag, name in lags[:10]:
        group = snapshot.groups[name]
        groups.add_row(
            escape(visible(name)),
            group.kind,
            group.state,
            f"{number(lag.records)}{' *' if lag.uncommitted else ''}",
            span(lag.seconds),
        )
    if any(lag.uncommitted for lag, _ in lags[:10]):
        groups.caption = "* without a commit, a partition counts from its start"
    written = history.written.rate()
    head = f"cluster {snapshot.cluster_id}  {len(snapshot.brokers)} brokers  {number(written)} records/s written"
    return Group(head, brokers, topics, groups)
