"""What a replica is in its epoch: one file per role.

A role holds what belongs to it and to nothing else; a transition makes a new one, and its election state (epoch,
leader, vote) is on disk before it acts. `grants` is each role's answer to a candidate of its own epoch.
"""

from ottla.raft.roles.candidate import Candidate
from ottla.raft.roles.follower import Follower
from ottla.raft.roles.leader import Leader, ReplicaState
from ottla.raft.roles.observer import Observer
from ottla.raft.roles.prospective import Prospective
from ottla.raft.roles.resigned import Resigned
from ottla.raft.roles.unattached import Unattached

Role = Unattached | Follower | Prospective | Candidate | Leader | Resigned | Observer

__all__ = [
    "Candidate",
    "Follower",
    "Leader",
    "Observer",
    "Prospective",
    "ReplicaState",
    "Resigned",
    "Role",
    "Unattached",
]
