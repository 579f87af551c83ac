"""Elections: when a voter requests votes, to which candidate it grants a vote, how a leader begins and ends its epoch.

A vote is on disk before the response that grants it is sent; the same holds for a candidate's own vote. A voter whose
leader is silent first sends a pre-vote: a replica that was cut off must not force a new epoch on its return.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, NodeId
from ottla.protocol.generated import begin_quorum_epoch_request as begin_messages
from ottla.protocol.generated import begin_quorum_epoch_response as begun_messages
from ottla.protocol.generated import end_quorum_epoch_request as end_messages
from ottla.protocol.generated import end_quorum_epoch_response as ended_messages
from ottla.protocol.generated import vote_request as vote_messages
from ottla.protocol.generated import vote_response as voted_messages
from ottla.raft.answers import (
    hinted_address,
    known_leader,
    leader_endpoints,
    metadata_partition,
    unusable_leader,
    wrong_cluster,
    wrong_voter,
)
from ottla.raft.config import Address
from ottla.raft.control import leader_change, quorum_records
from ottla.raft.outbound import Outbound, Reply
from ottla.raft.replica import Replica
from ottla.raft.roles import Candidate, Follower, Leader, Observer, Prospective, Resigned, Role, Unattached
from ottla.raft.roles.leader import ReplicaState
from ottla.raft.transitions import RoleEvent
from ottla.raft.voters import ReplicaKey

log = get_logger(__name__)

FIRST_PRE_VOTE_VERSION = 2
CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns after this many fetch timeouts without a majority (Kafka's own factor)."""


class Elections:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._in_flight: dict[NodeId, tuple[Role, Outbound]] = {}
        """Voter -> the Vote or EndQuorumEpoch request without a response, and the role that sent the request."""
        self._retry_ms: dict[NodeId, float] = {}

    # ------------------------------------------------------------------------------------------------------------ time

    def tick(self) -> None:
        """Make the transitions that are due by the clock, then send the requests of the role."""
        replica = self._replica
        now = replica.now_ms()
        role = replica.role
        if isinstance(role, Leader):
            self._check_quorum(role, now)
        elif isinstance(role, Resigned) and now >= role.deadline_ms:
            replica.become_unattached(role.epoch + 1, RoleEvent.TIMEOUT)
        elif isinstance(role, Prospective) and now >= role.deadline_ms:
            self._give_up(role, RoleEvent.TIMEOUT)
        elif isinstance(role, Unattached | Follower | Candidate) and now >= role.deadline_ms:
            replica.become_prospective()
        self._settle()
        self._send(now)

    def next_deadline_ms(self) -> float | None:
        replica = self._replica
        role = replica.role
        if isinstance(role, Observer):
            return None
        if isinstance(role, Leader):
            return replica.now_ms() + replica.config.fetch_timeout_ms / 4
        retries = [self._retry_ms[voter_id] for voter_id in self._unasked_voters(role) if voter_id in self._retry_ms]
        return min([role.deadline_ms, *retries])

    def _unasked_voters(self, role: Role) -> list[NodeId]:
        """Voters whose response this role needs and to whom it has not sent a request."""
        if isinstance(role, Prospective) or (isinstance(role, Candidate) and not role.backing_off):
            voter_ids = role.ballot.open()
        elif isinstance(role, Resigned):
            voter_ids = sorted(role.unaware)
        else:
            return []
        return [
            voter_id
            for voter_id in voter_ids
            if voter_id not in self._in_flight or self._in_flight[voter_id][0] is not role
        ]

    def _settle(self) -> None:
        """End an election that is won, which an only voter wins without a response."""
        replica = self._replica
        if isinstance(replica.role, Prospective) and replica.role.ballot.won:
            replica.become_candidate(RoleEvent.VOTES_WON)
        if isinstance(replica.role, Candidate) and replica.role.ballot.won:
            self.lead(replica.role)

    def _give_up(self, role: Prospective, event: RoleEvent) -> None:
        """The other voters still hear the leader, or no voter answers: return to the role before the pre-vote."""
        if role.leader is not None:
            self._replica.become_follower(role.epoch, role.leader_id, role.leader, event)
        else:
            self._replica.become_unattached(role.epoch, event, leader_id=role.leader_id, voted=role.voted)

    def _check_quorum(self, role: Leader, now: float) -> None:
        replica = self._replica
        timeout = replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR
        if not role.in_touch_with_majority(replica.voters, now, timeout):
            log.warning("quorum.majority_lost", epoch=role.epoch)
            self.resign()

    # --------------------------------------------------------------------------------------------------------- leading

    def lead(self, candidate: Candidate) -> None:
        replica = self._replica
        leader = Leader(candidate.epoch, replica.key, replica.log.end_offset, replica.now_ms())
        replica.become(leader, RoleEvent.VOTES_WON)
        records = [leader_change(replica.key.id, replica.voters.ids, sorted(candidate.ballot.granted))]
        if not replica.history.in_log:
            records += quorum_records(replica.history.kraft_version, replica.voters)
        start = leader.epoch_start_offset
        replica.append_control(records)
        log.info("quorum.leader_elected", epoch=leader.epoch, offset=start, kraft_version=replica.history.kraft_version)

    def resign(self) -> None:
        """Step down and send EndQuorumEpoch to the voters; the successors are ordered by their progress."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader):
            return
        other_voters = [voter for voter in replica.voters.voters if not voter.key.matches(replica.key)]
        progress = {voter.id: role.replica(voter) for voter in other_voters}

        def lag(key: ReplicaKey) -> int:
            state = progress[key.id]
            return 0 if state is None else -state.fetch_offset

        replica.become_resigned(tuple(sorted((voter.key for voter in other_voters), key=lag)))

    # -------------------------------------------------------------------------------------------------------- requests

    def _send(self, now: float) -> None:
        role = self._replica.role
        if isinstance(role, Leader):
            self._announce(role, now)
        for voter_id in self._unasked_voters(role):
            if isinstance(role, Resigned):
                self._ask(voter_id, role, self._end_request(role), now)
            elif isinstance(role, Prospective | Candidate):
                self._ask(voter_id, role, self._vote_request(role, voter_id), now)

    def _ask(
        self,
        voter_id: NodeId,
        role: Role,
        request: vote_messages.VoteRequest | end_messages.EndQuorumEpochRequest,
        now: float,
    ) -> None:
        """After a failed request, wait for the retry backoff."""
        address = self._replica.address_of(voter_id)
        if address is None or now < self._retry_ms.get(voter_id, 0.0):
            return
        self._retry_ms.pop(voter_id, None)
        on_response = partial(self._on_response, voter_id, role)
        self._in_flight[voter_id] = role, self._replica.send(address, voter_id, request, on_response)

    def _on_response(self, voter_id: NodeId, role: Role, response: object, _connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        request = self._in_flight.get(voter_id)
        if request is not None and request[0] is role:
            del self._in_flight[voter_id]
        if self._replica.role is not role:
            return
        if isinstance(response, voted_messages.VoteResponse) and isinstance(role, Prospective | Candidate):
            has_answered = self._on_vote_response(voter_id, role, response)
        elif isinstance(response, ended_messages.EndQuorumEpochResponse) and isinstance(role, Resigned):
            has_answered = True
            role.unaware.discard(voter_id)
        else:
            has_answered = False
        if not has_answered and self._replica.role is role:
            self._retry_ms[voter_id] = self._replica.now_ms() + self._replica.config.retry_backoff_ms

    def _vote_request(self, role: Prospective | Candidate, voter_id: NodeId) -> vote_messages.VoteRequest:
        replica = self._replica
        voter = replica.voters.get(voter_id)
        partition = vote_messages.PartitionData(
            partition_index=0,
            replica_epoch=role.epoch,
            replica_id=replica.key.id,
            replica_directory_id=replica.vote_key.directory_id,
            voter_directory_id=voter.directory_id if voter else ZERO_UUID,
            last_offset_epoch=replica.last_epoch,
            last_offset=replica.log.end_offset,
            pre_vote=isinstance(role, Prospective),
        )
        topic = vote_messages.TopicData(METADATA_TOPIC, [partition])
        return vote_messages.VoteRequest(cluster_id=replica.config.cluster_id, voter_id=voter_id, topics=[topic])

    def _on_vote_response(
        self, voter_id: NodeId, role: Prospective | Candidate, response: voted_messages.VoteResponse
    ) -> bool:
        """Whether the response decides this voter's vote."""
        replica = self._replica
        partition = metadata_partition(response)
        if response.error_code or partition is None:
            log.warning("vote.refused", voter=voter_id, reason=ErrorCode(response.error_code).name)
            return False
        leader = hinted_address(partition.leader_id, response.node_endpoints)
        if replica.observe(partition.leader_epoch, partition.leader_id, leader):
            return True
        if partition.error_code:
            return False
        role.ballot.count(voter_id, granted=partition.vote_granted)
        self._settle()
        if replica.role is role and role.ballot.lost:
            if isinstance(role, Candidate):
                role.backing_off = True
                role.deadline_ms = replica.now_ms() + replica.uniform(0, replica.config.election_backoff_max_ms)
            else:
                self._give_up(role, RoleEvent.VOTES_LOST)
        return True

    def _announce(self, role: Leader, now: float) -> None:
        """Send BeginQuorumEpoch to voters that do not fetch; a voter that fetches has found its leader."""
        replica = self._replica
        pause = replica.config.fetch_timeout_ms / 4
        for voter in replica.voters.voters:
            address = replica.address_of(voter.id)
            if voter.key.matches(replica.key) or address is None:
                continue
            state = role.replica(voter)
            if state is None:
                state = role.replicas[voter.key] = ReplicaState(voter.key)
            last_contact_ms = max(state.fetched_ms, -1.0 if state.begin_sent_ms is None else state.begin_sent_ms)
            if state.begin_sent_ms is not None and now - last_contact_ms < pause:
                continue
            if state.begin_sent_ms is None and state.fetched_ms >= 0 and now - state.fetched_ms < pause:
                continue
            state.begin_sent_ms = now
            partition = begin_messages.PartitionData(0, voter.directory_id, role.leader_id, role.epoch)
            request = begin_messages.BeginQuorumEpochRequest(
                cluster_id=replica.config.cluster_id,
                voter_id=voter.id,
                topics=[begin_messages.TopicData(METADATA_TOPIC, [partition])],
                leader_endpoints=[begin_messages.LeaderEndpoint(e.name, e.host, e.port) for e in self._own_endpoints()],
            )
            replica.send(address, voter.id, request, partial(self._on_begun, role))

    def _own_endpoints(self) -> list[begin_messages.LeaderEndpoint]:
        replica = self._replica
        voter = replica.voters.get(replica.key.id)
        endpoints = replica.config.endpoints or (voter.endpoints if voter else ())
        return [begin_messages.LeaderEndpoint(e.name, e.host, e.port) for e in endpoints]

    def _on_begun(self, role: Leader, response: object, _connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        if isinstance(response, begun_messages.BeginQuorumEpochResponse) and self._replica.role is role:
            partition = metadata_partition(response)
            if partition is not None and partition.leader_epoch > role.epoch:
                leader = hinted_address(partition.leader_id, response.node_endpoints)
                self._replica.observe(partition.leader_epoch, partition.leader_id, leader)

    def _end_request(self, role: Resigned) -> end_messages.EndQuorumEpochRequest:
        partition = end_messages.PartitionData(
            partition_index=0,
            leader_id=role.leader_id,
            leader_epoch=role.epoch,
            preferred_successors=[key.id for key in role.successors],
            preferred_candidates=[end_messages.ReplicaInfo(key.id, key.directory_id) for key in role.successors],
        )
        return end_messages.EndQuorumEpochRequest(
            cluster_id=self._replica.config.cluster_id,
            topics=[end_messages.TopicData(METADATA_TOPIC, [partition])],
            leader_endpoints=[end_messages.LeaderEndpoint(e.name, e.host, e.port) for e in self._own_endpoints()],
        )

    # -------------------------------------------------------------------------------------------- requests of others

    def on_vote(self, request: vote_messages.VoteRequest, version: int, reply: Reply) -> None:
        replica = self._replica
        partition = metadata_partition(request)
        if wrong_cluster(replica, request.cluster_id) or partition is None:
            code = ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.INCONSISTENT_CLUSTER_ID
            reply(voted_messages.VoteResponse(error_code=int(code)))
            return
        code, granted = self._vote(
            request, partition, pre_vote=version >= FIRST_PRE_VOTE_VERSION and partition.pre_vote
        )
        leader_id, _ = known_leader(replica)
        answer = voted_messages.PartitionData(0, int(code), leader_id, replica.epoch, granted)
        reply(
            voted_messages.VoteResponse(
                topics=[voted_messages.TopicData(METADATA_TOPIC, [answer])],
                node_endpoints=leader_endpoints(replica, voted_messages.NodeEndpoint),
            )
        )

    def _vote(
        self, request: vote_messages.VoteRequest, partition: vote_messages.PartitionData, *, pre_vote: bool
    ) -> tuple[ErrorCode, bool]:
        replica = self._replica
        if wrong_voter(replica, request.voter_id, partition.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        highest = partition.replica_epoch if pre_vote else partition.replica_epoch - 1
        if partition.last_offset < 0 or not 0 <= partition.last_offset_epoch <= highest or partition.replica_id < 0:
            return ErrorCode.INVALID_REQUEST, False
        if replica.out_of_reach(partition.replica_epoch):
            return ErrorCode.INVALID_REQUEST, False
        if partition.replica_epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if partition.replica_epoch > replica.epoch:
            replica.become_unattached(partition.replica_epoch, RoleEvent.HIGHER_EPOCH)
        candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        role = replica.role
        up_to_date = replica.up_to_date(partition.last_offset_epoch, partition.last_offset)
        granted = role.grants(candidate, up_to_date=up_to_date, pre_vote=pre_vote)
        if granted and not pre_vote and role.voted is None:
            replica.become_unattached(role.epoch, RoleEvent.VOTE_GRANTED, voted=candidate)
        return ErrorCode.NONE, granted

    def on_begin_quorum_epoch(
        self, request: begin_messages.BeginQuorumEpochRequest, _version: int, reply: Reply
    ) -> None:
        replica = self._replica
        partition = metadata_partition(request)
        if wrong_cluster(replica, request.cluster_id) or partition is None:
            code = ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.INCONSISTENT_CLUSTER_ID
            reply(begun_messages.BeginQuorumEpochResponse(error_code=int(code)))
            return
        code = ErrorCode.NONE
        if wrong_voter(replica, request.voter_id, partition.voter_directory_id):
            code = ErrorCode.INVALID_VOTER_KEY
        elif partition.leader_epoch < replica.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif unusable_leader(replica, partition.leader_id, partition.leader_epoch):
            code = ErrorCode.INVALID_REQUEST
        else:
            self._observe_leader(request, partition)
        leader_id, _ = known_leader(replica)
        answer = begun_messages.PartitionData(0, int(code), leader_id, replica.epoch)
        reply(
            begun_messages.BeginQuorumEpochResponse(
                topics=[begun_messages.TopicData(METADATA_TOPIC, [answer])],
                node_endpoints=leader_endpoints(replica, begun_messages.NodeEndpoint),
            )
        )

    def _observe_leader(
        self,
        request: begin_messages.BeginQuorumEpochRequest | end_messages.EndQuorumEpochRequest,
        partition: begin_messages.PartitionData | end_messages.PartitionData,
    ) -> None:
        endpoints: Sequence[begin_messages.LeaderEndpoint | end_messages.LeaderEndpoint] = request.leader_endpoints
        endpoint = next(iter(endpoints), None)
        leader = None if endpoint is None else Address(endpoint.host, endpoint.port)
        self._replica.observe(partition.leader_epoch, partition.leader_id, leader)

    def on_end_quorum_epoch(self, request: end_messages.EndQuorumEpochRequest, _version: int, reply: Reply) -> None:
        replica = self._replica
        partition = metadata_partition(request)
        if wrong_cluster(replica, request.cluster_id) or partition is None:
            code = ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.INCONSISTENT_CLUSTER_ID
            reply(ended_messages.EndQuorumEpochResponse(error_code=int(code)))
            return
        code = ErrorCode.NONE
        if partition.leader_epoch < replica.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif unusable_leader(replica, partition.leader_id, partition.leader_epoch):
            code = ErrorCode.INVALID_REQUEST
        else:
            self._observe_leader(request, partition)
            self._succeed(partition)
        leader_id, _ = known_leader(replica)
        answer = ended_messages.PartitionData(0, int(code), leader_id, replica.epoch)
        reply(
            ended_messages.EndQuorumEpochResponse(
                topics=[ended_messages.TopicData(METADATA_TOPIC, [answer])],
                node_endpoints=leader_endpoints(replica, ended_messages.NodeEndpoint),
            )
        )

    def _succeed(self, partition: end_messages.PartitionData) -> None:
        """The leader resigns: its first successor stands for election at once, the next successors after a backoff each."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Follower) or role.leader_id != partition.leader_id:
            return
        order = [c.candidate_id for c in partition.preferred_candidates] or list(partition.preferred_successors)
        place = order.index(replica.key.id) if replica.key.id in order else len(order)
        role.in_touch = False
        backoff = min(place * replica.config.election_timeout_ms / 4, replica.config.election_backoff_max_ms)
        role.deadline_ms = min(role.deadline_ms, replica.now_ms() + backoff)

    def on_leader_down(self) -> None:
        """The leader's port refuses connections: the process has ended, so an election may begin before the timeout. A
        leader that restarts at once does not lead again. All followers notice at the same moment, so they stand for
        election in the order of their ids: two candidates at once split the vote and cost a second.
        """
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower) and role.in_touch:
            role.in_touch = False
            place = sum(voter_id < replica.key.id for voter_id in replica.voters.ids if voter_id != role.leader_id)
            pause = (replica.uniform(0.02, 0.06) + 0.15 * place) * replica.config.election_timeout_ms
            role.deadline_ms = min(role.deadline_ms, replica.now_ms() + pause)
