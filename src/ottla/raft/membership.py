"""Changes of the voter set (KIP-853): a change concerns a single voter and begins when the last change is committed.

Majorities of voter sets that differ in a single voter overlap, so a set is in force as soon as the leader's log has it.
A new voter must have caught up as an observer, and must have fetched since the request: a dead voter must not count
(Kafka sends it ApiVersions first). A leader that removes itself leads until its removal is committed, then resigns.
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


class _VoterAddition:
    """A requested voter: first the new voter catches up, then the new voter set is committed."""

    def __init__(
        self, role: Leader, voter: Voter, fetched_after_ms: float, deadline_ms: float, reply: Reply | None
    ) -> None:
        self.role = role
        self.voter = voter
        self.fetched_after_ms = fetched_after_ms
        self.deadline_ms = deadline_ms
        self.reply = reply
        self.offset: int | None = None


class VoterChanges:
    def __init__(self, replica: Replica, elections: Elections) -> None:
        self._replica = replica
        self._elections = elections
        self.upgrade = KRaftUpgrade(replica)
        self._addition: _VoterAddition | None = None
        self._removal: tuple[Leader, int, Reply] | None = None
        self._introduced_role: object = None
        """The role in which this voter has sent its listeners to the leader."""
        self._request_in_flight = False
        self._next_request_ms = 0.0

    # ------------------------------------------------------------------------------------------------------------ time

    def tick(self) -> None:
        """Answer changes that are committed or have failed; send the request of this replica that is due."""
        self._follow_add()
        self._follow_remove()
        self._step_down_when_removed()
        self._introduce()

    def next_deadline_ms(self) -> float | None:
        if self._addition is not None:
            return self._addition.deadline_ms
        if self._has_request() and not self._request_in_flight:
            return self._next_request_ms
        return None

    def _refusal(self, cluster_id: str | None) -> tuple[ErrorCode, str] | None:
        """The reason why no change can begin now, or None."""
        replica = self._replica
        role = replica.role
        if wrong_cluster(replica, cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, "Another cluster id was expected"
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER.message
        if replica.history.kraft_version < 1:
            return ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support the kraft.version that changes voters"
        if self._addition is not None or replica.history.last_voters_offset >= replica.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for voters to commit the latest voter change"
        if role.high_watermark < 0:
            return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for leader to establish HWM"
        return None

    def _voter_keys(self) -> str:
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
            message = f"The voter id for {voter.key} is already part of the set of voters {self._voter_keys()}."
            refusal = ErrorCode.DUPLICATE_VOTER, message
        role = replica.role
        if refusal is not None or not isinstance(role, Leader):
            code, message = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            reply(AddRaftVoterResponse(error_code=int(code), error_message=message))
            return
        now_ms = replica.now_ms()
        addition = _VoterAddition(role, voter, now_ms, now_ms + max(request.timeout_ms, 1), reply)
        early = version >= 1 and not request.ack_when_committed
        if early:
            # The voter sent the request itself (auto join). Kafka's fetches wait behind this response on the same
            # connection, so the voter cannot catch up while the leader waits.
            addition.fetched_after_ms = now_ms - 2 * replica.config.fetch_timeout_ms
            if not _caught_up(addition):
                reply(AddRaftVoterResponse(error_code=int(ErrorCode.REQUEST_TIMED_OUT), error_message=_LAGGING))
                return
        self._addition = addition
        self._follow_add()
        if early:
            self._answer_add(ErrorCode.NONE)

    def _follow_add(self) -> None:
        replica, addition = self._replica, self._addition
        if addition is None:
            return
        if replica.role is not addition.role:
            self._answer_add(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._addition = None
        elif addition.offset is not None:
            if addition.offset < replica.high_watermark:
                self._answer_add(ErrorCode.NONE)
                self._addition = None
        elif _caught_up(addition):
            addition.offset = self._append(replica.voters.with_voter(addition.voter))
        elif replica.now_ms() >= addition.deadline_ms:
            self._answer_add(ErrorCode.REQUEST_TIMED_OUT, _LAGGING)
            self._addition = None

    def _answer_add(self, code: ErrorCode, message: str | None = None) -> None:
        if self._addition is not None and self._addition.reply is not None:
            reply, self._addition.reply = self._addition.reply, None
            reply(AddRaftVoterResponse(error_code=int(code), error_message=message or None))

    # ----------------------------------------------------------------------------------------------------------- remove

    def on_remove_raft_voter(self, request: RemoveRaftVoterRequest, _version: int, reply: Reply) -> None:
        replica = self._replica
        refusal = self._refusal(request.cluster_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        voter = replica.voters.get(request.voter_id)
        if refusal is None and (voter is None or voter.key != key):
            refusal = (
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key} from the set of voters {self._voter_keys()}",
            )
        if refusal is None and len(replica.voters.voters) == 1:
            refusal = ErrorCode.VOTER_NOT_FOUND, f"Cannot remove the last voter {request.voter_id}"
        role = replica.role
        if refusal is not None or not isinstance(role, Leader):
            code, message = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            reply(RemoveRaftVoterResponse(error_code=int(code), error_message=message))
            return
        if len(replica.voters.voters) == 2 and voter is not None and voter.key.matches(replica.key):
            # If this leader died before the second voter has the change, neither could be elected.
            self._elections.resign()
            message = "The leader of two voters hands over before it leaves: ask the new leader"
            reply(RemoveRaftVoterResponse(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), error_message=message))
            return
        offset = self._append(replica.voters.without(request.voter_id))
        self._removal = role, offset, reply

    def _follow_remove(self) -> None:
        if self._removal is None:
            return
        role, offset, reply = self._removal
        code: ErrorCode | None = None
        if self._replica.role is not role:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif offset < self._replica.high_watermark:
            code = ErrorCode.NONE
        if code is not None:
            self._removal = None
            reply(RemoveRaftVoterResponse(error_code=int(code), error_message=None))

    def _step_down_when_removed(self) -> None:
        replica = self._replica
        committed = replica.history.last_voters_offset < replica.high_watermark
        if isinstance(replica.role, Leader) and not replica.is_voter and committed:
            self._elections.resign()

    # ----------------------------------------------------------------------------------------------------------- update

    def on_update_raft_voter(self, request: UpdateRaftVoterRequest, _version: int, reply: Reply) -> None:
        """A voter reports its listeners and its kraft.versions; for static voters they stay in memory."""
        replica = self._replica
        code = epoch_error(replica, request.current_leader_epoch)
        if wrong_cluster(replica, request.cluster_id):
            code = ErrorCode.INCONSISTENT_CLUSTER_ID
        voter = replica.voters.get(request.voter_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        if code is ErrorCode.NONE and (voter is None or not voter.key.matches(key)):
            code = ErrorCode.VOTER_NOT_FOUND
        if code is ErrorCode.NONE and not request.listeners:
            code = ErrorCode.INVALID_REQUEST
        if code is ErrorCode.NONE and voter is not None:
            if replica.history.kraft_version >= 1:
                code = self._update(voter, request)
            else:
                self.upgrade.on_voter_update(
                    replace(self._updated_voter(voter, request), directory_id=request.voter_directory_id)
                )
        reply(UpdateRaftVoterResponse(error_code=int(code), current_leader=self._current_leader()))

    @staticmethod
    def _updated_voter(voter: Voter, request: UpdateRaftVoterRequest) -> Voter:
        feature = request.k_raft_version_feature
        return replace(
            voter,
            endpoints=tuple(VoterEndpoint(e.name, e.host, e.port) for e in request.listeners),
            kraft_versions=(feature.min_supported_version, feature.max_supported_version),
        )

    def _update(self, voter: Voter, request: UpdateRaftVoterRequest) -> ErrorCode:
        updated_voter = self._updated_voter(voter, request)
        if updated_voter == voter:
            return ErrorCode.NONE
        if (
            not updated_voter.kraft_versions[0]
            <= self._replica.history.kraft_version
            <= updated_voter.kraft_versions[1]
        ):
            return ErrorCode.INVALID_REQUEST
        if self._refusal(request.cluster_id) is not None:
            return ErrorCode.REQUEST_TIMED_OUT
        self._append(self._replica.voters.with_voter(updated_voter))
        return ErrorCode.NONE

    def _current_leader(self) -> CurrentLeader:
        leader_id, address = known_leader(self._replica)
        host, port = ("", -1) if address is None else address
        return CurrentLeader(leader_id, self._replica.epoch, host, port)

    # --------------------------------------------------------------------------------------- requests of this replica

    def _has_request(self) -> bool:
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower):
            return self._introduced_role is not role and role.in_touch and bool(replica.config.endpoints)
        return isinstance(role, Observer) and self._wants_to_join(role)

    def _wants_to_join(self, role: Observer) -> bool:
        config = self._replica.config
        return config.controller and config.auto_join and role.leader is not None and role.in_touch

    def _introduce(self) -> None:
        replica = self._replica
        role = replica.role
        if self._request_in_flight or replica.now_ms() < self._next_request_ms or not self._has_request():
            return
        if isinstance(role, Follower):
            self._request_in_flight = True
            replica.send(role.leader, role.leader_id, self._update_request(role), partial(self._on_introduced, role))
        elif isinstance(role, Observer) and role.leader is not None:
            self._request_in_flight = True
            replica.send(role.leader, role.leader_id, self._join_request(), self._on_response)

    def _on_introduced(self, role: Follower, response: object, connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        self._on_response(response, connection_refused)
        if isinstance(response, UpdateRaftVoterResponse) and not response.error_code:
            self._introduced_role = role

    def _on_response(self, _response: object, _connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        self._request_in_flight = False
        self._next_request_ms = self._replica.now_ms() + RETRY_MS

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
        """A node with a new disk is a new voter: the former voter with its id is removed first."""
        replica = self._replica
        former_voter = replica.voters.get(replica.key.id)
        if former_voter is not None and former_voter.id != NO_NODE:
            return RemoveRaftVoterRequest(replica.config.cluster_id, former_voter.id, former_voter.directory_id)
        return AddRaftVoterRequest(
            cluster_id=replica.config.cluster_id,
            timeout_ms=int(replica.config.request_timeout_ms),
            voter_id=replica.key.id,
            voter_directory_id=replica.key.directory_id,
            listeners=[Listener(e.name, e.host, e.port) for e in replica.config.endpoints],
            ack_when_committed=False,
        )


def _caught_up(addition: _VoterAddition) -> bool:
    state = addition.role.replicas.get(addition.voter.key)
    return (
        state is not None
        and state.last_caught_up_ms >= 0
        and state.fetched_ms > addition.fetched_after_ms
        and state.fetch_offset >= addition.role.epoch_start_offset
    )
