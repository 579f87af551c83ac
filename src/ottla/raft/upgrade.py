"""kraft.version 0 -> 1 while the quorum runs: static voters become voters of the log.

Static voters tell the leader of an epoch where they listen, which directory they have and which versions they know
(UpdateRaftVoter); that stays in memory. When all have spoken, one control batch with the version and the voters is the
upgrade: from then on the log says who votes, whatever controller.quorum.voters says.
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
"""The kraft.version that this is about."""


class KRaftUpgrade:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._role: object = None
        self._voter_updates: dict[NodeId, Voter] = {}

    def on_voter_update(self, voter: Voter) -> None:
        """A static voter has introduced itself to this leader."""
        role = self._replica.role
        if self._role is not role:
            self._role, self._voter_updates = role, {}
        self._voter_updates[voter.id] = voter

    def upgrade(self, *, validate_only: bool) -> str | None:
        """Append the upgrade; why not, when it cannot be."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            return "this controller does not lead the quorum any more"
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
            return "not all voters have told the leader of their directories and listeners yet"
        unsupporting_ids = [
            voter.id for voter in complete_voters if not voter.kraft_versions[0] <= DYNAMIC <= voter.kraft_versions[1]
        ]
        if unsupporting_ids:
            return f"voters {unsupporting_ids} do not support it"
        if not validate_only:
            offset = replica.append_control(quorum_records(DYNAMIC, VoterSet(tuple(complete_voters))))
            log.info("quorum.upgraded", kraft_version=DYNAMIC, voters=replica.voters.ids, offset=offset)
        return None
