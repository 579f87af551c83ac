"""The states of a partition on this broker as a table: which event leads from which state to which state.

`Partition` changes its state only by `next_state`. The metadata names leader and replicas, and any of its changes may be
skipped (a snapshot replaces many records): only a removed partition is bound to its state. `make docs` draws the table
in docs/cluster.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.model.ids import NodeId

if TYPE_CHECKING:
    from ottla.metadata.image import PartitionRegistration


class PartitionState(enum.Enum):
    OFFLINE = "No leader: the metadata names none, or the log directory has failed."
    LEADER = "This broker leads the partition, also while a reassignment runs."
    FOLLOWER = "This broker fetches from the leader."
    REASSIGNING = "As FOLLOWER, while a reassignment adds this replica or removes it."
    REMOVED = "The log is deleted; the object is not used again."


class PartitionEvent(enum.Enum):
    """Why a partition changes its state; the value is the sentence of the docs."""

    LEADER_ELECTED = "The metadata names this broker as the leader."
    LEADER_FOLLOWED = "The metadata names a different broker as the leader."
    REASSIGNMENT = "The same, and this replica is one of `adding_replicas` or `removing_replicas`."
    LEADER_LOST = "The metadata names no leader."
    DIRECTORY_FAILED = "The log directory of the replica goes offline."
    REPLICA_REMOVED = "The topic is deleted, or a reassignment ends without this replica."


FIRST_STATE = PartitionState.OFFLINE

_ON_THIS_BROKER = {
    PartitionEvent.LEADER_ELECTED: PartitionState.LEADER,
    PartitionEvent.LEADER_FOLLOWED: PartitionState.FOLLOWER,
    PartitionEvent.REASSIGNMENT: PartitionState.REASSIGNING,
    PartitionEvent.LEADER_LOST: PartitionState.OFFLINE,
    PartitionEvent.DIRECTORY_FAILED: PartitionState.OFFLINE,
    PartitionEvent.REPLICA_REMOVED: PartitionState.REMOVED,
}

TRANSITIONS: Mapping[PartitionState, Mapping[PartitionEvent, PartitionState]] = {
    PartitionState.OFFLINE: _ON_THIS_BROKER,
    PartitionState.LEADER: _ON_THIS_BROKER,
    PartitionState.FOLLOWER: _ON_THIS_BROKER,
    PartitionState.REASSIGNING: _ON_THIS_BROKER,
    PartitionState.REMOVED: {},
}


class PartitionStateError(Exception):
    """An event that the table does not have for the state: a bug."""


def next_state(state: PartitionState, event: PartitionEvent) -> PartitionState:
    """Raises PartitionStateError for an event that the table does not list."""
    target = TRANSITIONS[state].get(event)
    if target is None:
        raise PartitionStateError(f"a partition in state {state.name} cannot handle {event.name}")
    return target


def metadata_event(registration: PartitionRegistration, node_id: NodeId) -> PartitionEvent:
    """The event that a registration is for the replica on this broker."""
    if registration.leader == node_id:
        return PartitionEvent.LEADER_ELECTED
    if not registration.has_leader:
        return PartitionEvent.LEADER_LOST
    if node_id in registration.adding or node_id in registration.removing:
        return PartitionEvent.REASSIGNMENT
    return PartitionEvent.LEADER_FOLLOWED
