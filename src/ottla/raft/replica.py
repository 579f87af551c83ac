"""The state of one replica: its log, its snapshots, its voters, its role; the transitions between roles.

Every transition goes through `become`, which checks it against `transitions.py` and stores the election state before the
role acts. The high watermark never falls, and no batch below it is truncated: a violation is a bug and stops the node.
"""

from __future__ import annotations

from typing import Any

from ottla.env.logging import get_logger
from ottla.env.seams import Clock, RandomSource, Storage
from ottla.model.ids import NO_NODE, ZERO_UUID, NodeId, Offset
from ottla.protocol.primitives import DecodeError, Message
from ottla.protocol.records import crc_matches, iterate_batches
from ottla.raft.config import Address, RaftConfig
from ottla.raft.control import control_batch, control_messages
from ottla.raft.errors import RaftError
from ottla.raft.history import QuorumHistory
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.outbound import OnResponse, Outbound
from ottla.raft.quorum_state import QuorumState, store_quorum_state
from ottla.raft.roles import Candidate, Follower, Leader, Observer, Prospective, Resigned, Role, Unattached
from ottla.raft.roles.ballot import Ballot
from ottla.raft.snapshot_store import SnapshotStore
from ottla.raft.snapshots import SnapshotId
from ottla.raft.transitions import RoleEvent, check_transition
from ottla.raft.voters import ReplicaKey, VoterSet

log = get_logger(__name__)

_LARGE_EPOCH = 1 << 30
"""An election each second would take 34 years to get here."""
_EPOCH_JUMP = 1 << 20


class Replica:
    def __init__(
        self, storage: Storage, log_dir: str, clock: Clock, config: RaftConfig, random: RandomSource | None
    ) -> None:
        self.storage = storage
        self.clock = clock
        self.config = config
        self.random = random
        self.key = ReplicaKey(config.node_id, config.directory_id)
        self.log = MetadataLog(storage, log_dir, clock, config.log)
        self.snapshots = SnapshotStore(storage, log_dir, clock, config.retention)
        self.history = QuorumHistory(config.static_voters)
        self.role: Role = Unattached(0)
        self.id_taken = False
        """A broker that cannot lead has received its own id as the leader's id."""
        self.last_leader_contact: tuple[NodeId, float] | None = None
        """The last leader that responded, and the time of the response."""
        self.stored: QuorumState | None = None
        self.high_watermark = -1
        """The first offset that may not be committed; -1 while it is unknown."""
        self.durable_end_offset = 0
        """All batches below this offset are on disk."""
        self.outbox: list[Outbound] = []
        self.in_flight: set[Outbound] = set()

    # ---------------------------------------------------------------------------------------------------------- state

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.config.controller and self.voters.contains(self.key.id, self.key.directory_id)

    @property
    def vote_key(self) -> ReplicaKey:
        """The key of this replica in a vote: static voters have no directory ids."""
        return self.key if self.history.kraft_version else ReplicaKey(self.key.id, ZERO_UUID)

    def now_ms(self) -> float:
        return self.clock.monotonic_ms()

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2 if self.random is None else self.random.uniform(low, high)

    def election_deadline(self) -> float:
        timeout = self.config.election_timeout_ms
        return self.now_ms() + self.uniform(timeout, 2 * timeout)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot while the log is empty."""
        latest = self.snapshots.latest
        if latest is not None and latest.end_offset >= self.log.end_offset:
            return max(latest.epoch, self.log.epochs.last_epoch())
        return self.log.epochs.last_epoch()

    def up_to_date(self, last_epoch: int, end_offset: int) -> bool:
        """Whether a log with this end holds every record that this replica may count as committed."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.log.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of the log up to `epoch`, and its end offset; the start of the log when all epochs are later."""
        largest_epoch, end_offset = self.log.epochs.end_offset_for(epoch, self.log.end_offset)
        if end_offset < 0:
            oldest = self.snapshots.ids[0] if self.snapshots.ids else SnapshotId(0, 0)
            return oldest.epoch, self.log.start_offset
        return largest_epoch, end_offset

    # ----------------------------------------------------------------------------------------------------- transitions

    def become(self, role: Role, event: RoleEvent) -> None:
        """Check the transition, store the election state, change the role. An equal election state costs no write."""
        check_transition(self.role, event, role)
        state = role.quorum_state()
        if role.epoch < self.role.epoch:
            raise RaftError(f"node {self.key.id} would go back from epoch {self.role.epoch} to {role.epoch}")
        if state != self.stored:
            store_quorum_state(
                self.storage,
                self.log.log_dir,
                state,
                kraft_version=self.history.kraft_version,
                voters=self.voters.ids,
            )
            self.stored = state
        if type(role) is not type(self.role) or role.epoch != self.role.epoch:
            log.info("quorum.role_changed", role=type(role).__name__.lower(), epoch=role.epoch, leader=role.leader_id)
        self.role = role

    def become_unattached(
        self, epoch: int, event: RoleEvent, *, leader_id: NodeId = NO_NODE, voted: ReplicaKey | None = None
    ) -> None:
        deadline = self.election_deadline()
        if self.is_voter:
            self.become(Unattached(epoch, leader_id, voted, deadline), event)
        else:
            self.become(Observer(epoch, leader_id, None, voted, deadline), event)

    def become_follower(self, epoch: int, leader_id: NodeId, leader: Address, event: RoleEvent) -> None:
        voted = self.role.voted if self.role.epoch == epoch else None
        deadline = self.now_ms() + self.config.fetch_timeout_ms
        if self.is_voter:
            self.become(Follower(epoch, leader_id, leader, voted, deadline), event)
        else:
            self.become(Observer(epoch, leader_id, leader, voted, deadline), event)

    def become_prospective(self) -> None:
        role = self.role
        leader = role.leader if isinstance(role, Follower) else None
        ballot = Ballot.among(self.voters.ids, self.key.id)
        deadline = self.election_deadline()
        self.become(Prospective(role.epoch, ballot, role.leader_id, leader, role.voted, deadline), RoleEvent.TIMEOUT)

    def become_candidate(self, event: RoleEvent) -> None:
        ballot = Ballot.among(self.voters.ids, self.key.id)
        self.become(Candidate(self.epoch + 1, self.vote_key, ballot, self.election_deadline()), event)

    def become_resigned(self, successors: tuple[ReplicaKey, ...] = ()) -> None:
        unaware = {key.id for key in successors}
        role = Resigned(self.epoch, self.key.id, self.election_deadline(), unaware, successors)
        self.become(role, RoleEvent.RESIGNATION)

    def observe(self, epoch: int, leader_id: NodeId, leader: Address | None) -> bool:
        """A message names an epoch and its leader. Returns whether this replica changed its role."""
        role = self.role
        if leader_id == self.key.id and not self.config.controller:
            self.id_taken = True  # this broker never stands for election: a second node has its id
        if self.out_of_reach(epoch):
            log.error("quorum.epoch_rejected", epoch=epoch, own_epoch=role.epoch)
            return False
        leader = leader or self.address_of(leader_id)
        leader_reachable = leader_id not in (NO_NODE, self.key.id) and leader is not None
        if epoch > role.epoch:
            if leader_reachable and leader is not None:
                self.become_follower(epoch, leader_id, leader, RoleEvent.HIGHER_EPOCH)
            else:
                self.become_unattached(epoch, RoleEvent.HIGHER_EPOCH)
            return True
        if epoch < role.epoch or not leader_reachable or leader is None or isinstance(role, Leader | Resigned):
            return False
        if self.contradicts(epoch, leader_id):
            log.error("quorum.second_leader_rejected", epoch=epoch, leader=role.leader_id, second=leader_id)
            return False
        if isinstance(role, Follower) or (isinstance(role, Observer) and role.leader is not None):
            return False
        if isinstance(role, Prospective) and role.leader_id == leader_id:
            return False  # this leader is silent; the responses to the pre-vote decide
        self.become_follower(epoch, leader_id, leader, RoleEvent.LEADER_DISCOVERED)
        return True

    def out_of_reach(self, epoch: int) -> bool:
        """Whether no election can have reached this epoch. A replica that adopted the largest int32 could never elect a
        leader again, not even after a restart.
        """
        return epoch > max(self.epoch, _LARGE_EPOCH) + _EPOCH_JUMP

    def contradicts(self, epoch: int, leader_id: NodeId) -> bool:
        """Whether a message names a second leader for this replica's epoch. The replica keeps the first leader and does
        not stop: the message is the peer's, and a file with the first leader would stop every restart too.
        """
        role = self.role
        return epoch == role.epoch and leader_id != NO_NODE and role.leader_id not in (NO_NODE, leader_id)

    def adjust_to_voters(self) -> None:
        """The voter set has changed: a follower that left the set becomes an observer, an observer in the set a voter."""
        role = self.role
        target: Role | None = None
        if isinstance(role, Observer) and self.is_voter:
            if role.leader is not None:
                target = Follower(role.epoch, role.leader_id, role.leader, role.voted, role.deadline_ms, role.in_touch)
            else:
                target = Unattached(role.epoch, role.leader_id, role.voted, self.election_deadline())
        elif isinstance(role, Follower) and not self.is_voter:
            target = Observer(role.epoch, role.leader_id, role.leader, role.voted, role.deadline_ms, role.in_touch)
        if target is not None:
            self.become(target, RoleEvent.VOTERS_CHANGED)

    # ------------------------------------------------------------------------------------------------------------- log

    def append_control(self, records: list[Any]) -> int:
        """Append control records as leader; returns the last offset."""
        batch = control_batch(records, base_offset=self.log.end_offset, epoch=self.epoch, now_ms=self.clock.time_ms())
        last_offset = self.log.append(batch)
        self.history.load_batch(batch)
        return last_offset

    def append_fetched(self, data: bytes | memoryview) -> int:
        """Append the whole batches of a fetch; each batch is checked first. Returns the number of bytes."""
        appended_bytes = 0
        view = memoryview(data)
        for position, header in iterate_batches(view):
            if header.base_offset != self.log.end_offset or not crc_matches(view, position, header.size):
                raise RaftError(f"the leader sent a damaged batch at offset {header.base_offset}")
            if not self.last_epoch <= header.leader_epoch <= self.epoch:
                raise RaftError(f"a batch of epoch {header.leader_epoch} cannot follow epoch {self.last_epoch}")
            batch = bytes(view[position : position + header.size])
            control = _control_messages(batch) if header.is_control else []
            self.log.append(batch)
            self.snapshots.add_new_bytes(header.size, self.clock.time_ms())
            if self.history.load(control):
                self.adjust_to_voters()
            appended_bytes += header.size
        return appended_bytes

    def truncate(self, end_offset: int) -> None:
        if end_offset < self.high_watermark:
            raise RaftError(f"a truncation to {end_offset} is below the high watermark {self.high_watermark}")
        self.log.truncate(end_offset)
        self.history.truncate(self.log.end_offset)
        self.durable_end_offset = min(self.durable_end_offset, self.log.end_offset)
        self.adjust_to_voters()
        log.info("metadata_log.truncated", end_offset=self.log.end_offset)

    def raise_high_watermark(self, high_watermark: int) -> bool:
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.history.forget_before(high_watermark)
        return True

    # --------------------------------------------------------------------------------------------------------- requests

    def address_of(self, node_id: NodeId) -> Address | None:
        voter = self.voters.get(node_id)
        if voter is None or not voter.endpoints:
            return None
        return Address(voter.endpoints[0].host, voter.endpoints[0].port)

    def send(self, address: Address, node_id: NodeId, request: Message, on_response: OnResponse) -> Outbound:
        outbound = Outbound(address, node_id, request, self.config.request_timeout_ms, on_response)
        self.outbox.append(outbound)
        self.in_flight.add(outbound)
        return outbound


def _control_messages(batch: bytes) -> list[tuple[Offset, Message]]:
    """Read before the batch is appended: a start could not read the log with a damaged control record either."""
    try:
        return list(control_messages(batch))
    except DecodeError as error:
        raise RaftError(f"the leader sent a damaged control record: {error}") from error
