"""Where replicas should go: pure plans from the cluster's metadata, for draining a broker and for spreading load.

A plan moves as few replicas as possible, and keeps replicas of a partition on different racks where there are enough. A
plan depends only on the current state of the cluster: after an interruption, a new plan contains the rest of the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Partition = tuple[str, int]
Assignment = dict[Partition, tuple[int, ...]]
"""Partition -> its replicas, the preferred leader first."""


class ImpossiblePlan(Exception):
    """No plan can reach the goal; the message has the reason."""


class BrokerInfo(NamedTuple):
    id: int
    rack: str | None = None


class _Load:
    def __init__(self, brokers: Iterable[BrokerInfo], current: Assignment) -> None:
        self.racks = {broker.id: broker.rack for broker in brokers}
        self.replicas = Counter(dict.fromkeys(self.racks, 0))
        self.leaders = Counter(dict.fromkeys(self.racks, 0))
        for replicas in current.values():
            self.replicas.update(replicas)
            self.leaders[replicas[0]] += 1

    def has_room(self, others: tuple[int, ...]) -> bool:
        """Whether a broker is left for one more replica beside `others`."""
        return any(broker not in others for broker in self.racks)

    def best_for(self, partition: Partition, others: tuple[int, ...]) -> int:
        """The broker for one more replica beside `others`: a rack of its own first, then the fewest replicas."""
        candidates = [broker for broker in self.racks if broker not in others]
        if not candidates:
            raise ImpossiblePlan(
                f"{partition[0]}-{partition[1]} has {len(others) + 1} replicas and there are only "
                f"{len(self.racks)} brokers to put them on"
            )
        taken = {self.racks.get(broker) for broker in others}
        return min(candidates, key=lambda b: (self.racks[b] in taken, self.replicas[b], self.leaders[b], b))


def plan_drain(
    brokers: Iterable[BrokerInfo], current: Assignment, node: int, *, allow_fewer: bool = False
) -> Assignment:
    """New replicas for everything that is on `node`, so that nothing is left there.

    With `allow_fewer`, a partition for which the other nodes are too few has one replica less.
    """
    load = _Load((broker for broker in brokers if broker.id != node), current)
    remaining_by_partition = {
        partition: tuple(replica for replica in replicas if replica != node)
        for partition, replicas in sorted(current.items())
        if node in replicas
    }
    without_room = [p for p, remaining in remaining_by_partition.items() if not load.has_room(remaining)]
    if without_room and not allow_fewer:
        raise ImpossiblePlan(_no_room(node, without_room, current, len(load.racks)))
    lost = [p for p in without_room if not load.racks.keys() & set(remaining_by_partition[p])]
    if lost:
        raise ImpossiblePlan(
            f"node {node} cannot be drained, and nothing was moved: {len(lost)} partitions would have no replica on a node "
            f"that is up (such as {lost[0][0]}-{lost[0][1]}). Start another node"
        )
    plan: Assignment = {}
    for partition, remaining in remaining_by_partition.items():
        if not load.has_room(remaining):
            plan[partition] = remaining
            continue
        new = load.best_for(partition, remaining)
        plan[partition] = tuple(new if replica == node else replica for replica in current[partition])
        load.replicas[new] += 1
        if current[partition][0] == node:
            load.leaders[new] += 1
    return plan


def _no_room(node: int, stuck: list[Partition], current: Assignment, others: int) -> str:
    topic, index = stuck[0]
    return (
        f"node {node} cannot be drained, and nothing was moved: {len(stuck)} partitions have more replicas than the "
        f"{others} other nodes can hold (such as {topic}-{index} with {len(current[stuck[0]])}). Start another node, or "
        "repeat with --allow-fewer: these partitions then have one replica less"
    )


def plan_balance(brokers: Iterable[BrokerInfo], current: Assignment) -> Assignment:
    """Moves that even out the load: where possible, counts of replicas and preferred leaders differ by at most one."""
    load = _Load(brokers, current)
    target = dict(current)
    _spread_replicas(load, target)
    _spread_leaders(load, target)
    return {partition: replicas for partition, replicas in sorted(target.items()) if replicas != current[partition]}


def _spread_replicas(load: _Load, target: Assignment) -> None:
    for _ in range(sum(load.replicas.values())):
        full = max(load.racks, key=lambda b: (load.replicas[b], b))
        empty = min(load.racks, key=lambda b: (load.replicas[b], b))
        if load.replicas[full] - load.replicas[empty] <= 1:
            return
        partition = _movable(load, target, full, empty)
        if partition is None:
            return
        replicas = target[partition]
        target[partition] = tuple(empty if replica == full else replica for replica in replicas)
        load.replicas[full] -= 1
        load.replicas[empty] += 1
        if replicas[0] == full:
            load.leaders[full] -= 1
            load.leaders[empty] += 1


def _movable(load: _Load, target: Assignment, full: int, empty: int) -> Partition | None:
    """A partition of `full` that may go to `empty` without putting two of its replicas on one rack."""
    rack = load.racks[empty]
    fallback = None
    for partition, replicas in sorted(target.items()):
        if full in replicas and empty not in replicas:
            others = {load.racks.get(replica) for replica in replicas if replica != full}
            if rack is None or rack not in others:
                if (replicas[0] == full) == (load.leaders[full] > load.leaders[empty]):
                    return partition
                fallback = fallback or partition
    return fallback


def _spread_leaders(load: _Load, target: Assignment) -> None:
    for _ in range(len(target)):
        best: tuple[int, Partition, int] | None = None
        for partition, replicas in sorted(target.items()):
            leader = replicas[0]
            for replica in replicas[1:]:
                gain = load.leaders[leader] - load.leaders[replica]
                if gain > 1 and replica in load.racks and (best is None or gain > best[0]):
                    best = (gain, partition, replica)
        if best is None:
            return
        _, partition, replica = best
        replicas = target[partition]
        load.leaders[replicas[0]] -= 1
        load.leaders[replica] += 1
        target[partition] = (replica, *(r for r in replicas if r != replica))


def plan_factor(brokers: Iterable[BrokerInfo], current: Assignment, factor: int) -> Assignment:
    """Grow or shrink every partition to `factor` replicas; leaders stay where they are."""
    load = _Load(brokers, current)
    plan: Assignment = {}
    for partition, replicas in sorted(current.items()):
        new_replicas = list(replicas[:factor])
        while len(new_replicas) < factor:
            new = load.best_for(partition, tuple(new_replicas))
            load.replicas[new] += 1
            new_replicas.append(new)
        if tuple(new_replicas) != replicas:
            plan[partition] = tuple(new_replicas)
    return plan


def spread(brokers: Iterable[BrokerInfo], current: Mapping[Partition, tuple[int, ...]]) -> dict[int, tuple[int, int]]:
    """Broker -> (replicas, preferred leaders)."""
    load = _Load(brokers, dict(current))
    return {broker: (load.replicas[broker], load.leaders[broker]) for broker in load.racks}
