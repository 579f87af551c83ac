"""Replica lists for new partitions, given by hand or placed, and the registrations that come of them."""

from __future__ import annotations

from ottla.controller.placement import place_replicas
from ottla.controller.state import ControllerState
from ottla.metadata.image import PartitionRegistration
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId
from ottla.model.pace import paced


def check_manual_assignment(state: ControllerState, replicas: list[NodeId], replication_factor: int | None) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for a list that is empty, or has unknown brokers, duplicates, or a different
    count.
    """
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    previous: NodeId | None = None
    for replica in sorted(replicas):
        if replica not in state.image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
        if replica == previous:
            raise _invalid(f"The manual partition assignment includes the broker {replica} more than once.")
        previous = replica
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def manual_partition(
    state: ControllerState, index: int, replicas: list[NodeId], replication_factor: int | None
) -> PartitionRegistration:
    check_manual_assignment(state, replicas, replication_factor)
    isr = [replica for replica in replicas if state.active(replica)]
    if not isr:
        raise _invalid(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return new_partition(state, replicas, isr)


def placed_partitions(state: ControllerState, count: int, replication_factor: int) -> list[PartitionRegistration]:
    """INVALID_REPLICATION_FACTOR when the brokers do not suffice."""
    brokers = list(state.image.brokers.values())
    partitions = []
    for replicas in paced(place_replicas(brokers, count, replication_factor, state.random), 4):
        isr = [replica for replica in replicas if state.active(replica)]
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
        partitions.append(new_partition(state, replicas, isr))
    return partitions


def new_partition(state: ControllerState, replicas: list[NodeId], isr: list[NodeId]) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=tuple(replicas),
        isr=tuple(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(state.default_directory(replica) for replica in replicas),
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
