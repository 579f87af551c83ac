"""kraft.version 0 -> 1 while the quorum runs: static voters become voters of the log.

Static voters send the leader their listeners, their directory and their versions (UpdateRaftVoter); the leader keeps
them in memory. When all voters have reported, a control batch with the version and the voters is the upgrade. From then
on the log decides on the voters, and controller.quorum.voters has no effect.
"""

from __future__ import annotations

from ottla.env.logging import get_logger
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.raft.control import quorum_records
from ottla.raft.replica import Replica
from ottla.raft.roles import Leader
from ottla.raft.voters import Voter, VoterSet

log = get_logger(__name__)

DYNAMIC = 1
"""The kraft.version with voters in the log."""


class KRaftUpgrade:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._role: object = None
        self._voter_updates: dict[NodeId, Voter] = {}

    def on_voter_update(self, voter: Voter) -> None:
        """A static voter has reported its listeners and directory to this leader."""
        role = self._replica.role
        if self._role is not role:
            self._role, self._voter_updates = role, {}
        self._voter_updates[voter.id] = voter

    def upgrade(self, *, validate_only: bool) -> str | None:
        """Append the upgrade; returns the reason of a refusal."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            return "this controller no longer leads the quorum"
        if replica.history.kraft_version >= DYNAMIC:
            return None
        updates = self._voter_updates if self._role is role else {}
        own_voter = Voter(replica.key.id, replica.key.directory_id, replica.config.endpoints)
        reported_voters = [
            own_voter if voter.id == own_voter.id else updates.get(voter.id) for voter in replica.voters.voters
        ]
        complete_voters = [
            voter
            for voter in reported_voters
            if voter is not None and voter.directory_id != ZERO_UUID and voter.endpoints
        ]
        if len(complete_voters) < len(reported_voters):
            return "not all voters have reported their directories and listeners to the leader"
        unsupporting_ids = [
            voter.id for voter in complete_voters if not voter.kraft_versions[0] <= DYNAMIC <= voter.kraft_versions[1]
        ]
        if unsupporting_ids:
            return f"voters {unsupporting_ids} do not support kraft.version {DYNAMIC}"
        if not validate_only:
            offset = replica.append_control(quorum_records(DYNAMIC, VoterSet(tuple(complete_voters))))
            log.info("quorum.upgraded", kraft_version=DYNAMIC, voters=replica.voters.ids, offset=offset)
        return None
