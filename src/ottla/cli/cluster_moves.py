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
        while todo or now.moving:
            free = at_once - len(now.moving)
            batch = {p: replicas for p, replicas in todo.items() if p not in now.moving}
            if free > 0 and batch:
                reassign(connected, dict(list(batch.items())[:free]))
            _wait(connected, len(now.moving) + min(max(free, 0), len(batch)))
            now = view(connected)
            todo = plan(now)
            total = max(total, len(todo) + len(now.moving))
            progress.update(bar, total=total, completed=total - len(todo) - len(now.moving))


def _wait(connected: Cluster, asked: int) -> None:
    """Until fewer moves are under way than were asked for."""
    while asked and len(ongoing(connected)) >= asked:
        time.sleep(POLL_SECONDS)
