"""What `ottla cluster reassign` was asked for, as a plan over the cluster as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.client.balancing import Assignment, plan_factor

if TYPE_CHECKING:
    from ottla.client.reassignments import ClusterView

Planner = Callable[["ClusterView"], Assignment]


def planner(
    seen: ClusterView, target: str | None, replicas: str | None, factor: int | None, file: Path | None
) -> Planner:
    """UsageError when it cannot be meant; nothing is changed then."""
    if file is not None:
        return _fixed(_from_file(file))
    if target is None:
        raise click.UsageError("name a TOPIC or TOPIC:PARTITION")
    chosen = chosen_partitions(seen, target)
    if factor is not None:
        return lambda now: plan_factor(now.brokers, {p: now.replicas[p] for p in chosen if p in now.replicas}, factor)
    return _fixed(dict.fromkeys(chosen, _ids(replicas or "")))


def _fixed(assignment: Assignment) -> Planner:
    return lambda now: {p: r for p, r in assignment.items() if now.replicas.get(p) != r}


def chosen_partitions(seen: ClusterView, target: str) -> list[tuple[str, int]]:
    topic, separator, index = target.rpartition(":")
    name = topic if separator and index.isdecimal() else target
    partitions = [p for p in seen.replicas if p[0] == name and (name == target or p[1] == int(index))]
    if not partitions:
        raise click.UsageError(f"there is no {target} in this cluster")
    return sorted(partitions)


def _ids(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise click.UsageError(f"--replicas {text!r} is not a list of node ids")
    return tuple(int(word) for word in words)


def _from_file(file: Path) -> Assignment:
    try:
        plan = json.loads(file.read_text("utf-8"))
        return {(p["topic"], int(p["partition"])): tuple(int(r) for r in p["replicas"]) for p in plan["partitions"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{file} is not a plan of reassignments: {error!r}") from error
