"""Where the replicas of new partitions go: striped over racks, unfenced brokers before fenced ones.

Partition i starts one rack after partition i - 1, and within a rack one broker further, so leaders and followers
spread evenly. The first replica is always on an unfenced broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from ottla.env.seams import RandomSource
from ottla.metadata.image import BrokerRegistration
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId

ItemT = TypeVar("ItemT")


def place_replicas(
    brokers: list[BrokerRegistration], partitions: int, replication_factor: int, random: RandomSource
) -> list[list[NodeId]]:
    """Replica lists for `partitions` partitions; INVALID_REPLICATION_FACTOR when there are not enough brokers."""
    usable = [broker for broker in brokers if not (broker.in_controlled_shutdown or _cordoned(broker))]
    _check(replication_factor, len(usable), sum(not broker.fenced for broker in usable))
    racks = _racks(usable, random)
    start = int(random.uniform(0, len(racks)))
    return [_place(racks, start + index, replication_factor) for index in range(partitions)]


@dataclass(slots=True)
class _Rack:
    unfenced: list[NodeId]
    fenced: list[NodeId]
    turn: int = 0

    def next(self) -> list[NodeId]:
        """Every broker of the rack in this turn's order."""
        order = _rotated(self.unfenced, self.turn) + _rotated(self.fenced, self.turn)
        self.turn += 1
        return order


def _cordoned(broker: BrokerRegistration) -> bool:
    """Whether no log directory of the broker accepts new replicas (KIP-1066)."""
    cordoned = broker.cordoned_directories or ()
    return bool(broker.directories) and set(broker.directories) <= set(cordoned)


def _check(replication_factor: int, brokers: int, unfenced: int) -> None:
    if replication_factor <= 0:
        raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if unfenced == 0:
        raise _invalid("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > brokers:
        raise _invalid(
            f"The target replication factor of {replication_factor} cannot be reached because only {brokers} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )


def _racks(brokers: list[BrokerRegistration], random: RandomSource) -> list[_Rack]:
    racks: dict[str, _Rack] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        rack = racks.setdefault(broker.rack or "", _Rack([], []))
        (rack.fenced if broker.fenced else rack.unfenced).append(broker.id)
    for rack in racks.values():
        rack.turn = int(random.uniform(0, len(rack.unfenced) or 1))
    return [rack for _, rack in sorted(racks.items())]


def _place(racks: list[_Rack], first_rack: int, replication_factor: int) -> list[NodeId]:
    """One broker of each rack in turn until there are enough; fenced brokers only after all unfenced brokers."""
    orders = [rack.next() for rack in _rotated(racks, first_rack)]
    fenced = {broker for rack in racks for broker in rack.fenced}
    striped = [broker for tier in zip_longest(*orders) for broker in tier if broker is not None]
    striped.sort(key=lambda broker: broker in fenced)
    return striped[:replication_factor]


def _rotated(items: list[ItemT], by: int) -> list[ItemT]:
    by %= len(items) or 1
    return items[by:] + items[:by]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
