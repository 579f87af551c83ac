"""The table of partition states: the metadata decides on the state, and a removed replica stays removed."""

from __future__ import annotations

import pytest

from ottla.metadata.image import PartitionRegistration
from ottla.replication.partition_states import (
    FIRST_STATE,
    TRANSITIONS,
    PartitionEvent,
    PartitionState,
    PartitionStateError,
    metadata_event,
    next_state,
)


def state_after(state: PartitionState, leader: int, **reassignment: tuple[int, ...]) -> PartitionState:
    registration = PartitionRegistration((1, 2, 3), (2,), leader, 4, 5, **reassignment)  # type: ignore[arg-type]
    return next_state(state, metadata_event(registration, 1))


def test_every_state_and_every_event_stands_in_the_table() -> None:
    assert set(TRANSITIONS) == set(PartitionState)
    assert {event for row in TRANSITIONS.values() for event in row} == set(PartitionEvent)


@pytest.mark.parametrize("state", [state for state in PartitionState if state is not PartitionState.REMOVED])
def test_the_metadata_decides(state: PartitionState) -> None:
    assert state_after(state, 1) is PartitionState.LEADER
    assert state_after(state, 1, removing=(1,)) is PartitionState.LEADER
    assert state_after(state, 2) is PartitionState.FOLLOWER
    assert state_after(state, 2, adding=(3,)) is PartitionState.FOLLOWER
    assert state_after(state, 2, adding=(1,)) is PartitionState.REASSIGNING
    assert state_after(state, 2, removing=(1,)) is PartitionState.REASSIGNING
    assert state_after(state, -1) is PartitionState.OFFLINE


def test_a_failed_directory_takes_a_leader_offline() -> None:
    assert next_state(PartitionState.LEADER, PartitionEvent.DIRECTORY_FAILED) is PartitionState.OFFLINE
    assert FIRST_STATE is PartitionState.OFFLINE


@pytest.mark.parametrize("event", list(PartitionEvent), ids=lambda event: event.name)
def test_a_removed_partition_stays_removed(event: PartitionEvent) -> None:
    with pytest.raises(PartitionStateError, match=f"in state REMOVED cannot handle {event.name}"):
        next_state(PartitionState.REMOVED, event)
