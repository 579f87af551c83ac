"""Targets of faults: `broker 2`, `controller`, `leader of orders-0`, `same as NAME`. A target is checked when the scenario
is read, and becomes nodes when the fault happens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.simulation.scenario.places import nearest, shown
from ottla.simulation.scenario.plan import FIRST_CONTROLLER, ClusterPlan, TopicPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = ("brokers", "controllers", "all")
ROLES = ("leader", "follower", "followers")
_NODE = re.compile(r"(broker|controller) (\d{1,6})")
_PARTITION = re.compile(r"(.+)-(\d{1,6})")
_OF = re.compile(r"(\w+) of (.+)")
_SAME = re.compile(r"same as (.+)")
EXAMPLES = '"broker 1", "controller", "leader of TOPIC-0", "follower of TOPIC-0", "brokers" or "all"'


@dataclass(frozen=True, slots=True)
class FaultTarget:
    role: str
    """node, leader, follower, followers, controller (the active one), brokers, controllers, all, partition or same."""
    node: int = 0
    topic: str = ""
    partition: int = 0
    name: str = ""


def parse_target(text: str, cluster: ClusterPlan, topics: Mapping[str, TopicPlan]) -> FaultTarget:
    """Raises ValueError with the reason and the advice."""
    if text in ALL or text == "controller":
        return FaultTarget(text)
    if (match := _NODE.fullmatch(text)) is not None:
        return FaultTarget("node", _node(match[1], int(match[2]), cluster))
    if (match := _SAME.fullmatch(text)) is not None:
        return FaultTarget("same", name=match[1].strip())
    if (match := _OF.fullmatch(text)) is not None:
        if match[1] not in ROLES:
            raise ValueError(f"{shown(text)}: unknown role; {nearest(match[1], ROLES) or f'use {EXAMPLES}'}")
        topic, partition = parse_partition(match[2], topics)
        replicas = topics[topic].replicas
        if match[1] != "leader" and replicas < 2:
            raise ValueError(f"{shown(text)}: {topic} has {replicas} replica and no follower; raise its replicas")
        return FaultTarget(match[1], topic=topic, partition=partition)
    raise ValueError(f"{shown(text)} is not a target; {nearest(text, (*ALL, 'controller')) or f'use {EXAMPLES}'}")


def parse_partition(text: str, topics: Mapping[str, TopicPlan]) -> tuple[str, int]:
    """Topic and number of `orders-0`. Raises ValueError."""
    match = _PARTITION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shown(text)} is not a partition; write TOPIC-NUMBER, as {next(iter(topics))}-0")
    topic = topics.get(match[1])
    if topic is None:
        advice = nearest(match[1], topics) or f"topics of this scenario are {', '.join(topics)}"
        raise ValueError(f"unknown topic {shown(match[1])}; {advice}")
    if int(match[2]) >= topic.partitions:
        raise ValueError(
            f"{shown(text)}: {match[1]} has {topic.partitions} partitions, numbered from 0 to {topic.partitions - 1}"
        )
    return match[1], int(match[2])


def _node(role: str, number: int, cluster: ClusterPlan) -> int:
    first, count = (1, cluster.brokers) if role == "broker" else (FIRST_CONTROLLER, cluster.controllers)
    last = first + count - 1
    if not first <= number <= last:
        ids = f"{first} to {last}" if last > first else str(first)
        raise ValueError(f"{role} {number} does not exist; {role}s of this scenario have the ids {ids}")
    return number
