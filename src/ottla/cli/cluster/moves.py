"""Carrying a plan out: a few moves at a time, watched until they are done, with a progress bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.reassignments import ongoing, reassign, view

if TYPE_CHECKING:
    from ottla.client.balancing import Assignment
    from ottla.client.cluster import Cluster
    from ottla.client.reassignments import ClusterView

POLL_SECONDS = 0.2
SETTLE_SECONDS = 30.0
"""How long a broker may need to learn of a move that the controller has completed."""


def move(connected: Cluster, plan: Callable[[ClusterView], Assignment], at_once: int, title: str) -> None:
    """Until `plan`, asked again and again of the cluster as it is, finds nothing more to do."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        now = view(connected)
        todo = plan(now)
        total = len(todo) + len(now.moving)
        bar = progress.add_task(title, total=total)
        targets: Assignment = {}
        while todo or now.moving:
            free = at_once - len(now.moving)
            waiting = {p: replicas for p, replicas in todo.items() if p not in now.moving}
            batch = dict(list(waiting.items())[: max(free, 0)])
            if batch:
                reassign(connected, batch)
            targets |= {p: now.replicas[p] for p in now.moving if p in now.replicas} | batch
            _wait(connected, len(now.moving) + len(batch))
            now = _settled(connected, targets)
            todo = plan(now)
            total = max(total, len(todo) + len(now.moving))
            progress.update(bar, total=total, completed=total - len(todo) - len(now.moving))


def _settled(connected: Cluster, targets: Assignment) -> ClusterView:
    """Returns the cluster's state once the broker that answers shows the finished moves, or after SETTLE_SECONDS.

    A broker that lags behind the controller still lists old and new replicas of a moved partition. A plan made from
    that list would keep all of them.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        now = view(connected)
        done = {p: set(replicas) for p, replicas in targets.items() if p in now.replicas and p not in now.moving}
        if all(set(now.replicas[p]) == replicas for p, replicas in done.items()) or time.monotonic() > deadline:
            return now
        time.sleep(POLL_SECONDS)


def _wait(connected: Cluster, move_count: int) -> None:
    """Until fewer moves are under way than were asked for."""
    while move_count and len(ongoing(connected)) >= move_count:
        time.sleep(POLL_SECONDS)
