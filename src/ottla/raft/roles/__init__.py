"""The roles of a replica in its epoch, in a file each.

A role holds only its own state. A transition creates a new role object; its election state (epoch, leader, vote) is on
disk before the role acts. `grants` decides on the vote for a candidate of the same epoch.
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
