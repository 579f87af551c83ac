"""The table of roles: its completeness, the transitions that a replica refuses, and its drawing in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from tests.raft.test_node import make

from ottla.raft.errors import RaftError
from ottla.raft.quorum_state import FILE_NAME
from ottla.raft.roles import Candidate, Leader, Role, Unattached
from ottla.raft.transitions import FIRST_ROLES, TRANSITIONS, RoleEvent
from ottla.raft.voters import Voter, VoterSet


def test_every_role_and_every_event_stands_in_the_table() -> None:
    assert set(TRANSITIONS) == set(get_args(Role))
    assert {event for row in TRANSITIONS.values() for event in row} == set(RoleEvent)
    reachable = set(FIRST_ROLES)
    for _ in TRANSITIONS:
        reachable |= {target for role in reachable for targets in TRANSITIONS[role].values() for target in targets}
    assert reachable == set(TRANSITIONS)


def test_only_votes_make_a_leader() -> None:
    edges = [(role, event) for role, row in TRANSITIONS.items() for event in row if Leader in row[event]]
    assert edges == [(Candidate, RoleEvent.VOTES_WON)]


def test_a_transition_outside_the_table_changes_nothing(tmp_path: Path) -> None:
    node = make(tmp_path, voters=VoterSet((Voter(1), Voter(2))))
    node.start()
    role = node.role
    assert isinstance(role, Unattached)
    leader = Leader(5, node.replica.key, 0)
    for event in RoleEvent:
        with pytest.raises(
            RaftError, match=f"a Unattached in epoch 0 cannot become a Leader in epoch 5 by {event.name}"
        ):
            node.replica.become(leader, event)
    with pytest.raises(RaftError, match="by VOTES_WON"):
        node.replica.become_candidate(RoleEvent.VOTES_WON)  # without a pre-vote
    assert node.role is role
    assert not (tmp_path / "__cluster_metadata-0" / FILE_NAME).exists()


def test_an_only_voter_starts_an_election_at_once(tmp_path: Path) -> None:
    node = make(tmp_path)
    node.start()
    assert isinstance(node.role, Leader)
    with pytest.raises(RaftError, match="cannot become a Candidate"):
        node.replica.become_candidate(RoleEvent.ONLY_VOTER)


def test_the_docs_show_the_tables() -> None:
    from tools.state_docs import CLUSTER, cluster_section, page

    text = CLUSTER.read_text("utf-8")
    assert text.count(cluster_section()) == 1, "run make docs"
    assert page(CLUSTER, text) == text
