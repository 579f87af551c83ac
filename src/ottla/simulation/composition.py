"""How the nodes of a simulated cluster are made up: roles, brokers, replicas, racks, directories, flushes.

Each seed of whole nodes draws a composition from dice of its own. A part of the seeds has the plain composition: three
brokers under controllers of their own, with two log directories each.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.model.ids import NodeId
from ottla.replication.read_replica import RACK_AWARE

PLAIN_SHARE = 0.3
FLUSH_SHARE = 0.4
FORGETFUL_SHARE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    brokers: int = 3
    combined: bool = False
    """The controllers are brokers too, as many of them as there are brokers."""
    replicas: int = 3
    racks: int = 0
    """Brokers take the racks in turn; consumers read from the closest replica."""
    folders: tuple[str, ...] = ("/logs", "/logs-2")
    flush_messages: int = 0
    flush_ms: int = 0
    move_bytes_per_s: int = 0
    """A bound for moves between directories, so that a move lasts long enough to meet a fault."""
    forgetful: bool = False
    """A power cut takes back names that were not synced."""

    @property
    def min_insync(self) -> int:
        return 2 if self.replicas > 2 else 1

    def observers(self, voters: int) -> int:
        """Nodes beside the voters."""
        return max(self.brokers - voters, 0) if self.combined else self.brokers

    def is_broker(self, node_id: NodeId, voters: int) -> bool:
        return node_id > voters or (self.combined and node_id <= max(self.brokers, 1))

    def rack(self, node_id: NodeId) -> str:
        return f"rack-{node_id % self.racks}" if self.racks else ""

    def properties(self, node_id: NodeId) -> Mapping[str, str]:
        """The settings of a broker, over those of a short life."""
        replicas, in_sync = str(self.replicas), str(self.min_insync)
        properties = {"log.dirs": ",".join(self.folders)}
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            properties[f"{topic}.replication.factor"] = replicas
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            properties[f"{topic}.min.isr"] = in_sync
        if self.racks:
            properties |= {"broker.rack": self.rack(node_id), "replica.selector.class": RACK_AWARE}
        if self.flush_messages:
            properties["log.flush.interval.messages"] = str(self.flush_messages)
        if self.flush_ms:
            properties |= {
                "log.flush.interval.ms": str(self.flush_ms),
                "log.flush.scheduler.interval.ms": str(self.flush_ms),
            }
        if self.move_bytes_per_s:
            properties["replica.alter.log.dirs.io.max.bytes.per.second"] = str(self.move_bytes_per_s)
        return properties


PLAIN = Composition()


def composition_of(seed: int) -> Composition:
    dice = random.Random(seed * 43 + 17)  # noqa: S311 - a simulation must be repeatable
    if dice.random() < PLAIN_SHARE:
        return Composition(forgetful=dice.random() < FORGETFUL_SHARE)
    combined = dice.random() < 0.5
    brokers = dice.choice([1, 2, 3, 3, 3, 3, 4, 5])
    return Composition(
        brokers=brokers,
        combined=combined,
        replicas=min(brokers, dice.choice([1, 2, 3, 3, 3, 4, 5])),
        racks=dice.choice([0, 2, 3]),
        folders=("/logs", "/logs-2", "/logs-3")[: dice.choice([2, 2, 3])],
        flush_messages=dice.choice([1, 5]) if dice.random() < FLUSH_SHARE else 0,
        flush_ms=dice.choice([100, 400]) if dice.random() < FLUSH_SHARE else 0,
        move_bytes_per_s=dice.choice([0, 2_000, 10_000]),
        forgetful=dice.random() < FORGETFUL_SHARE,
    )
