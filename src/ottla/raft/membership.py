"""Changes of the voter set (KIP-853): one voter at a time, and the next only when the last is committed.

Two majorities of voter sets that differ in one voter always meet, so each set may be in force as soon as it is in the
leader's log. A new voter must have caught up as an observer before it counts, and must have fetched since it was asked
for: one that has just died is not counted (Kafka asks it for its ApiVersions first). A leader that removes itself goes on
until that is committed and then steps down.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE
from ottla.protocol.generated.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.protocol.generated.add_raft_voter_response import AddRaftVoterResponse
from ottla.protocol.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.protocol.generated.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.protocol.generated.update_raft_voter_request import KRaftVersionFeature, UpdateRaftVoterRequest
from ottla.protocol.generated.update_raft_voter_request import Listener as UpdateListener
from ottla.protocol.generated.update_raft_voter_response import CurrentLeader, UpdateRaftVoterResponse
from ottla.raft.answers import epoch_error, known_leader, wrong_cluster
from ottla.raft.elections import Elections
from ottla.raft.outbound import Reply
from ottla.raft.replica import Replica
from ottla.raft.roles import Follower, Leader, Observer
from ottla.raft.upgrade import KRaftUpgrade
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

log = get_logger(__name__)

SUPPORTED_KRAFT_VERSIONS = (0, 1)
RETRY_MS = 1_000.0
_LAGGING = "the new voter has not caught up with the leader"


class _Waiting:
    """A change that is asked for: until the new voter has caught up, then until it is committed."""

    def __init__(
        self, role: Leader, voter: Voter, heard_after_ms: float, deadline_ms: float, reply: Reply | None
    ) -> None:
        self.role = role
        self.voter = voter
        self.heard_after_ms = heard_after_ms
        self.deadline_ms = deadline_ms
        self.reply = reply
        self.offset: int | None = None


class Membership:
    def __init__(self, replica: Replica, elections: Elections) -> None:
        self._replica = replica
        self._elections = elections
        self.upgrade = KRaftUpgrade(replica)
        self._adding: _Waiting | None = None
        self._removing: tuple[Leader, int, Reply] | None = None
        self._introduced: object = None
        """The role in which this voter has told the leader of its listeners."""
        self._asking = False
        self._not_before_ms = 0.0

    # ------------------------------------------------------------------------------------------------------------ time

    def tick(self) -> None:
        """Answer changes that are committed, or can never be; introduce this replica where that is its task."""
        self._follow_add()
        self._follow_remove()
        self._step_down_when_removed()
        self._introduce()

    def next_deadline_ms(self) -> float | None:
        if self._adding is not None:
            return self._adding.deadline_ms
        if self._wants_to_speak() and not self._asking:
            return self._not_before_ms
        return None

    def _refusal(self, cluster_id: str | None) -> tuple[ErrorCode, str] | None:
        """Why no change can begin now."""
        replica = self._replica
        role = replica.role
        if wrong_cluster(replica, cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, "Another cluster id was expected"
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER.message
        if replica.history.kraft_version < 1:
            return ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support the kraft.version that changes voters"
        if self._adding is not None or replica.history.last_voters_offset >= replica.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for voters to commit the latest voter change"
        if role.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for leader to establish HWM"
        return None

    def _spelled(self) -> str:
        return f"[{', '.join(str(voter.key) for voter in self._replica.voters.voters)}]"

    def _append(self, voters: VoterSet) -> int:
        offset = self._replica.append_control([voters.to_record()])
        log.info("quorum.voters_changed", voters=voters.ids, offset=offset)
        return offset

    # -------------------------------------------------------------------------------------------------------------- add

    def on_add_raft_voter(self, request: AddRaftVoterRequest, version: int, reply: Reply) -> None:
        replica = self._replica
        refusal = self._refusal(request.cluster_id)
        voter = Voter(
            request.voter_id,
            request.voter_directory_id,
            tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners),
            SUPPORTED_KRAFT_VERSIONS,
        )
        if refusal is None and (not voter.endpoints or request.voter_id < 0):
            refusal = ErrorCode.INVALID_REQUEST, "Add voter request didn't include the default listener"
        if refusal is None and replica.voters.get(request.voter_id) is not None:
            known = f"The voter id for {voter.key} is already part of the set of voters {self._spelled()}."
            refusal = ErrorCode.DUPLICATE_VOTER, known
        role = replica.role
        if refusal is not None or not isinstance(role, Leader):
            code, message = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            reply(AddRaftVoterResponse(error_code=int(code), error_message=message))
            return
        now_ms = replica.now_ms()
        adding = _Waiting(role, voter, now_ms, now_ms + max(request.timeout_ms, 1), reply)
        early = version >= 1 and not request.ack_when_committed
        if early:
            # The voter itself asks (auto join), and Kafka's fetches wait behind the answer on one connection: now or never.
            adding.heard_after_ms = now_ms - 2 * replica.config.fetch_timeout_ms
            if not _caught_up(adding):
                reply(AddRaftVoterResponse(error_code=int(ErrorCode.REQUEST_TIMED_OUT), error_message=_LAGGING))
                return
        self._adding = adding
        self._follow_add()
        if early:
            self._answer_add(ErrorCode.NONE)

    def _follow_add(self) -> None:
        replica, adding = self._replica, self._adding
        if adding is None:
            return
        if replica.role is not adding.role:
            self._answer_add(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._adding = None
        elif adding.offset is not None:
            if adding.offset < replica.high_watermark:
                self._answer_add(ErrorCode.NONE)
                self._adding = None
        elif _caught_up(adding):
            adding.offset = self._append(replica.voters.with_voter(adding.voter))
        elif replica.now_ms() >= adding.deadline_ms:
            self._answer_add(ErrorCode.REQUEST_TIMED_OUT, _LAGGING)
            self._adding = None

    def _answer_add(self, code: ErrorCode, message: str | None = None) -> None:
        if self._adding is not None and self._adding.reply is not None:
            reply, self._adding.reply = self._adding.reply, None
            reply(AddRaftVoterResponse(error_code=int(code), error_message=message or None))

    # ----------------------------------------------------------------------------------------------------------- remove

    def on_remove_raft_voter(self, request: RemoveRaftVoterRequest, _version: int, reply: Reply) -> None:
        replica = self._replica
        refusal = self._refusal(request.cluster_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        known = replica.voters.get(request.voter_id)
        if refusal is None and (known is None or known.key != key):
            refusal = ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {self._spelled()}"
        if refusal is None and len(replica.voters.voters) == 1:
            refusal = ErrorCode.VOTER_NOT_FOUND, f"Cannot remove the last voter {request.voter_id}"
        role = replica.role
        if refusal is not None or not isinstance(role, Leader):
            code, message = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            reply(RemoveRaftVoterResponse(error_code=int(code), error_message=message))
            return
        if len(replica.voters.voters) == 2 and known is not None and known.key.matches(replica.key):
            # If it died before the other has the change, neither could be elected: the other has to do it.
            self._elections.resign()
            message = "The leader of two voters hands over before it leaves: ask the new leader"
            reply(RemoveRaftVoterResponse(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), error_message=message))
            return
        offset = self._append(replica.voters.without(request.voter_id))
        self._removing = role, offset, reply

    def _follow_remove(self) -> None:
        if self._removing is None:
            return
        role, offset, reply = self._removing
        code: ErrorCode | None = None
        if self._replica.role is not role:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif offset < self._replica.high_watermark:
            code = ErrorCode.NONE
        if code is not None:
            self._removing = None
            reply(RemoveRaftVoterResponse(error_code=int(code), error_message=None))

    def _step_down_when_removed(self) -> None:
        replica = self._replica
        committed = replica.history.last_voters_offset < replica.high_watermark
        if isinstance(replica.role, Leader) and not replica.is_voter and committed:
            self._elections.resign()

    # ----------------------------------------------------------------------------------------------------------- update

    def on_update_raft_voter(self, request: UpdateRaftVoterRequest, _version: int, reply: Reply) -> None:
        """A voter tells where it listens and which kraft.versions it knows; static voters only in memory."""
        replica = self._replica
        code = epoch_error(replica, request.current_leader_epoch)
        if wrong_cluster(replica, request.cluster_id):
            code = ErrorCode.INCONSISTENT_CLUSTER_ID
        known = replica.voters.get(request.voter_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        if code is ErrorCode.NONE and (known is None or not known.key.matches(key)):
            code = ErrorCode.VOTER_NOT_FOUND
        if code is ErrorCode.NONE and not request.listeners:
            code = ErrorCode.INVALID_REQUEST
        if code is ErrorCode.NONE and known is not None:
            if replica.history.kraft_version >= 1:
                code = self._update(known, request)
            else:
                self.upgrade.told(replace(self._updated(known, request), directory_id=request.voter_directory_id))
        reply(UpdateRaftVoterResponse(error_code=int(code), current_leader=self._current_leader()))

    @staticmethod
    def _updated(known: Voter, request: UpdateRaftVoterRequest) -> Voter:
        feature = request.k_raft_version_feature
        return replace(
            known,
            endpoints=tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners),
            kraft_versions=(feature.min_supported_version, feature.max_supported_version),
        )

    def _update(self, known: Voter, request: UpdateRaftVoterRequest) -> ErrorCode:
        updated = self._updated(known, request)
        if updated == known:
            return ErrorCode.NONE
        if not updated.kraft_versions[0] <= self._replica.history.kraft_version <= updated.kraft_versions[1]:
            return ErrorCode.INVALID_REQUEST
        if self._refusal(request.cluster_id) is not None:
            return ErrorCode.REQUEST_TIMED_OUT
        self._append(self._replica.voters.with_voter(updated))
        return ErrorCode.NONE

    def _current_leader(self) -> CurrentLeader:
        leader_id, address = known_leader(self._replica)
        host, port = ("", -1) if address is None else address
        return CurrentLeader(leader_id, self._replica.epoch, host, port)

    # ------------------------------------------------------------------------------------------- what this replica asks

    def _wants_to_speak(self) -> bool:
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower):
            return self._introduced is not role and role.in_touch and bool(replica.config.endpoints)
        return isinstance(role, Observer) and self._wants_to_join(role)

    def _wants_to_join(self, role: Observer) -> bool:
        config = self._replica.config
        return config.controller and config.auto_join and role.leader is not None and role.in_touch

    def _introduce(self) -> None:
        replica = self._replica
        role = replica.role
        if self._asking or replica.now_ms() < self._not_before_ms or not self._wants_to_speak():
            return
        if isinstance(role, Follower):
            self._asking = True
            replica.send(role.leader, role.leader_id, self._update_request(role), partial(self._on_introduced, role))
        elif isinstance(role, Observer) and role.leader is not None:
            self._asking = True
            replica.send(role.leader, role.leader_id, self._join_request(), self._on_asked)

    def _on_introduced(self, role: Follower, response: object, gone: bool) -> None:  # noqa: FBT001 - OnResponse
        self._on_asked(response, gone)
        if isinstance(response, UpdateRaftVoterResponse) and not response.error_code:
            self._introduced = role

    def _on_asked(self, _response: object, _gone: bool) -> None:  # noqa: FBT001 - OnResponse
        self._asking = False
        self._not_before_ms = self._replica.now_ms() + RETRY_MS

    def _update_request(self, role: Follower) -> UpdateRaftVoterRequest:
        replica = self._replica
        return UpdateRaftVoterRequest(
            cluster_id=replica.config.cluster_id,
            current_leader_epoch=role.epoch,
            voter_id=replica.key.id,
            voter_directory_id=replica.key.directory_id,
            listeners=[UpdateListener(e.name, e.host, e.port) for e in replica.config.endpoints],
            k_raft_version_feature=KRaftVersionFeature(*SUPPORTED_KRAFT_VERSIONS),
        )

    def _join_request(self) -> AddRaftVoterRequest | RemoveRaftVoterRequest:
        """With a new disk this node is another voter: the old one goes first."""
        replica = self._replica
        old = replica.voters.get(replica.key.id)
        if old is not None and old.id != NO_NODE:
            return RemoveRaftVoterRequest(replica.config.cluster_id, old.id, old.directory_id)
        return AddRaftVoterRequest(
            cluster_id=replica.config.cluster_id,
            timeout_ms=int(replica.config.request_timeout_ms),
            voter_id=replica.key.id,
            voter_directory_id=replica.key.directory_id,
            listeners=[Listener(e.name, e.host, e.port) for e in replica.config.endpoints],
            ack_when_committed=False,
        )


def _caught_up(adding: _Waiting) -> bool:
    state = adding.role.replicas.get(adding.voter.key)
    return (
        state is not None
        and state.last_caught_up_ms >= 0
        and state.fetched_ms > adding.heard_after_ms
        and state.fetch_offset >= adding.role.epoch_start_offset
    )
