"""The roles of a replica as a table: which event leads from which role to which roles.

Every change of role goes through `Replica.become`, which refuses a transition that this table does not list. Only
classes of roles stand here; epochs, votes and files belong to `Replica`. `make docs` draws the table in docs/cluster.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ottla.raft.errors import RaftError
from ottla.raft.roles import Candidate, Follower, Leader, Observer, Prospective, Resigned, Role, Unattached


class RoleEvent(enum.Enum):
    """Why a replica changes its role; the value is the sentence of the docs."""

    TIMEOUT = "The deadline of the role passes."
    VOTES_WON = "A majority of the voters grants the vote, or the pre-vote (KIP-996)."
    VOTES_LOST = "A majority of the voters refuses the pre-vote."
    VOTE_GRANTED = "The replica votes for a candidate of its own epoch."
    LEADER_DISCOVERED = "A message names the leader of the replica's own epoch."
    HIGHER_EPOCH = "A message carries a higher epoch, with or without its leader."
    VOTERS_CHANGED = "The log adds the replica to the voter set or removes it (KIP-853)."
    RESIGNATION = "The leader stops, leaves the voter set, or a majority no longer fetches from it."
    ONLY_VOTER = "The replica starts and is the only voter."


FIRST_ROLES: tuple[type[Role], ...] = (Unattached, Resigned, Observer)
"""The roles of a replica that has just loaded its files."""

TRANSITIONS: Mapping[type[Role], Mapping[RoleEvent, tuple[type[Role], ...]]] = {
    Unattached: {
        RoleEvent.TIMEOUT: (Prospective,),
        RoleEvent.VOTE_GRANTED: (Unattached,),
        RoleEvent.LEADER_DISCOVERED: (Follower,),
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached),
        RoleEvent.ONLY_VOTER: (Candidate,),
    },
    Follower: {
        RoleEvent.TIMEOUT: (Prospective,),
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached),
        RoleEvent.VOTERS_CHANGED: (Observer,),
    },
    Prospective: {
        RoleEvent.TIMEOUT: (Follower, Unattached),
        RoleEvent.VOTES_WON: (Candidate,),
        RoleEvent.VOTES_LOST: (Follower, Unattached),
        RoleEvent.VOTE_GRANTED: (Unattached,),
        RoleEvent.LEADER_DISCOVERED: (Follower,),
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached),
    },
    Candidate: {
        RoleEvent.TIMEOUT: (Prospective,),
        RoleEvent.VOTES_WON: (Leader,),
        RoleEvent.LEADER_DISCOVERED: (Follower,),
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached),
    },
    # A leader may have removed itself from the voters: it then continues as an observer.
    Leader: {
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached, Observer),
        RoleEvent.RESIGNATION: (Resigned,),
    },
    Resigned: {
        RoleEvent.TIMEOUT: (Unattached, Observer),
        RoleEvent.HIGHER_EPOCH: (Follower, Unattached, Observer),
        RoleEvent.ONLY_VOTER: (Candidate,),
    },
    Observer: {
        RoleEvent.VOTE_GRANTED: (Observer,),
        RoleEvent.LEADER_DISCOVERED: (Observer,),
        RoleEvent.HIGHER_EPOCH: (Observer,),
        RoleEvent.VOTERS_CHANGED: (Follower, Unattached),
    },
}


def check_transition(current: Role, event: RoleEvent, target: Role) -> None:
    """Raises RaftError for a transition that is not in the table: a bug, which must not reach the disk."""
    if type(target) not in TRANSITIONS[type(current)].get(event, ()):
        raise RaftError(
            f"a {type(current).__name__} in epoch {current.epoch} cannot become a {type(target).__name__} "
            f"in epoch {target.epoch} by {event.name}"
        )
