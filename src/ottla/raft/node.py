"""A replica of the metadata quorum as a synchronous core: it decides, the caller runs its blocking calls and its network.

Requests come in by `receive`, responses by `respond`, time by `tick`; `ready` returns the requests to send. A vote is on
disk before it is sent. The high watermark covers only batches that a majority has on disk, and batches of older epochs
only together with a batch of this epoch. A batch is appended whole or not at all. `sync` and `write_snapshot` block and
may run on a second thread; all other methods belong to the owner's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ottla.env.seams import Clock, RandomSource, Storage
from ottla.model.ids import NO_NODE, NodeId, uuid_to_str
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import Message
from ottla.protocol.records import SimpleRecord, build_batch
from ottla.raft.config import RaftConfig
from ottla.raft.elections import Elections
from ottla.raft.errors import BatchTooLargeError, MetadataLogError, RaftError
from ottla.raft.fetch_server import FetchServer
from ottla.raft.membership import VoterChanges
from ottla.raft.metadata_fetcher import MetadataFetcher
from ottla.raft.metadata_log import MetadataLog
from ottla.raft.outbound import Outbound, Reply
from ottla.raft.quorum_state import QuorumState, load_quorum_state
from ottla.raft.replica import Replica
from ottla.raft.roles import Leader, Observer, Resigned, Role, Unattached
from ottla.raft.snapshot_store import SnapshotStore
from ottla.raft.snapshots import MAX_BATCH_BYTES, Snapshot, SnapshotId, frame_groups
from ottla.raft.transitions import RoleEvent
from ottla.raft.views import CommittedBatch, QuorumView, ReplicaProgress
from ottla.raft.voters import Voter, VoterSet


class RaftNode:
    def __init__(
        self,
        storage: Storage,
        log_dir: str,
        clock: Clock,
        config: RaftConfig,
        random: RandomSource | None = None,
    ) -> None:
        """`log_dir` is the `__cluster_metadata-0` folder itself."""
        self.replica = Replica(storage, log_dir, clock, config, random)
        self.elections = Elections(self.replica)
        self.fetcher = MetadataFetcher(self.replica, self.elections)
        self.fetch_server = FetchServer(self.replica)
        self.membership = VoterChanges(self.replica, self.elections)
        self.node_id = config.node_id
        self._receivers: dict[int, Callable[[Any, int, Reply], None]] = {
            ApiKey.VOTE: self.elections.on_vote,
            ApiKey.BEGIN_QUORUM_EPOCH: self.elections.on_begin_quorum_epoch,
            ApiKey.END_QUORUM_EPOCH: self.elections.on_end_quorum_epoch,
            ApiKey.FETCH: self.fetch_server.on_fetch,
            ApiKey.FETCH_SNAPSHOT: self.fetch_server.on_fetch_snapshot,
            ApiKey.ADD_RAFT_VOTER: self.membership.on_add_raft_voter,
            ApiKey.REMOVE_RAFT_VOTER: self.membership.on_remove_raft_voter,
            ApiKey.UPDATE_RAFT_VOTER: self.membership.on_update_raft_voter,
        }

    # -------------------------------------------------------------------------------------------------- start and end

    def start(self) -> Snapshot | None:
        """Load the files; an only voter leads at once. Returns the newest snapshot; `committed` returns the batches
        after the snapshot.
        """
        replica = self.replica
        log_dir = replica.log.log_dir
        replica.storage.make_dirs(log_dir)
        state = load_quorum_state(replica.storage, log_dir)
        snapshot = replica.snapshots.open()
        base = replica.snapshots.latest or SnapshotId(0, 0)
        replica.log.open(base.end_offset, base.epoch)
        if replica.log.start_offset > base.end_offset:
            raise MetadataLogError(
                f"{log_dir} begins at offset {replica.log.start_offset}, but no snapshot covers the offsets before"
            )
        if replica.log.start_offset > 0:
            # The log begins where a snapshot ends: only the snapshot has the epoch of the record before.
            replica.log.delete_before(replica.snapshots.ids[0].end_offset)
        replica.snapshots.add_new_bytes(replica.log.bytes_past_snapshot, replica.clock.time_ms())
        self._load_history(snapshot, base)
        self._check_voters()
        # A process that died may leave bytes in the page cache only: they count after a sync.
        if replica.log.size:
            replica.log.sync()
        replica.durable_end_offset = replica.log.end_offset
        if base.end_offset > 0:
            replica.raise_high_watermark(base.end_offset)
        self._first_role(state)
        if replica.is_voter and len(self.voters.voters) == 1:
            self._elect_alone()
        return snapshot

    def _first_role(self, state: QuorumState | None) -> None:
        """The role that the files allow; nothing is written. After the loss of quorum-state, the epoch of the log counts.
        A leader that was stopped never leads its epoch again.
        """
        replica = self.replica
        epoch = max(state.leader_epoch if state else 0, replica.last_epoch)
        replica.stored = state
        leader_id, voted = (state.leader_id, state.voted) if state and state.leader_epoch == epoch else (NO_NODE, None)
        deadline = replica.election_deadline()
        if not replica.is_voter:
            replica.role = Observer(epoch, leader_id, None, voted, deadline)
        elif leader_id == self.node_id:
            replica.role = Resigned(epoch, leader_id, deadline)
        else:
            replica.role = Unattached(epoch, leader_id, voted, deadline)

    def _elect_alone(self) -> None:
        replica = self.replica
        replica.become_candidate(RoleEvent.ONLY_VOTER)
        self.elections.tick()
        replica.log.sync()
        self.flushed(replica.log.end_offset)

    def close(self) -> None:
        self.log.close()

    def _load_history(self, snapshot: Snapshot | None, base: SnapshotId) -> None:
        """kraft.version and voters of the log; without them those of the snapshot, then those of the settings."""
        replica = self.replica
        if snapshot is not None:
            replica.history.load_snapshot(snapshot, base)
        for offset in replica.log.control_offsets:
            if offset >= base.end_offset:
                _, data = next(iter(replica.log.batches(offset)))
                replica.history.load_batch(data)

    def _check_voters(self) -> None:
        replica = self.replica
        config, voters = replica.config, self.voters
        if not voters.voters and not config.bootstrap_servers:
            raise RaftError(
                "no voters are known: set controller.quorum.voters or controller.quorum.bootstrap.servers, or format "
                "the storage with --standalone or --initial-controllers"
            )
        if not config.controller or replica.is_voter:
            return
        directory = uuid_to_str(config.directory_id)
        alone = len(voters.voters) == 1 and voters.get(self.node_id) is not None
        if alone or (config.static_voters is not None and config.static_voters.get(self.node_id) is None):
            raise RaftError(f"node {self.node_id} with directory {directory} is not a voter of {voters.ids}")

    # -------------------------------------------------------------------------------------------- requests, time

    def receive(self, request: Message, version: int, reply: Reply) -> None:
        """Handle the request of a replica or a client. Raises KeyError for an API that the quorum does not serve."""
        self._receivers[request.API_KEY](request, version, reply)

    def respond(self, outbound: Outbound, response: Message | None, *, connection_refused: bool = False) -> None:
        """Handle the response to a request of `ready`, or None after a failure; `connection_refused` means that no
        process listens there. A second response to the same request is ignored.
        """
        if outbound in self.replica.in_flight:
            self.replica.in_flight.remove(outbound)
            outbound.on_response(response, connection_refused)

    def tick(self) -> None:
        """Do the work that is due after time has passed or an event. A call without due work changes nothing."""
        self.elections.tick()
        self.fetcher.tick()
        self.membership.tick()
        self.fetch_server.wake()

    def ready(self) -> list[Outbound]:
        """The requests to send; each is returned once."""
        sending, self.replica.outbox = self.replica.outbox, []
        return sending

    def next_deadline_ms(self) -> float | None:
        """The monotonic time at which the caller must call `tick` at the latest."""
        if len(self.voters.voters) == 1 and self.is_leader and not self.replica.config.bootstrap_servers:
            return self.fetch_server.next_deadline_ms()
        deadlines = (
            self.elections.next_deadline_ms(),
            self.fetcher.next_deadline_ms(),
            self.fetch_server.next_deadline_ms(),
            self.membership.next_deadline_ms(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def resign(self) -> None:
        """Step down, so that a successor is elected at once."""
        self.elections.resign()

    def take_loaded(self) -> tuple[Snapshot, SnapshotId] | None:
        """A snapshot that has replaced the log since the last call."""
        snapshot, self.fetcher.loaded_snapshot = self.fetcher.loaded_snapshot, None
        return snapshot

    # ------------------------------------------------------------------------------------------------------------ state

    @property
    def log(self) -> MetadataLog:
        return self.replica.log

    @property
    def snapshots(self) -> SnapshotStore:
        return self.replica.snapshots

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def kraft_version(self) -> int:
        return self.replica.history.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self.replica.voters

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> NodeId:
        """The leader of the epoch; NO_NODE without a leader."""
        return NO_NODE if isinstance(self.role, Resigned) else self.role.leader_id

    def upgrade_kraft_version(self, *, validate_only: bool) -> str | None:
        """Upgrade to 1, with the voters in the log; returns the reason of a refusal. The caller calls `pump`."""
        return self.membership.upgrade.upgrade(validate_only=validate_only)

    def take_last_leader_contact(self) -> tuple[NodeId, float] | None:
        """For a new leader, once: the id of the former leader and the time of its last response."""
        contact, self.replica.last_leader_contact = self.replica.last_leader_contact, None
        return contact

    @property
    def epoch_start_offset(self) -> int | None:
        """The first offset of this node's own epoch while it leads, else None."""
        return self.role.epoch_start_offset if isinstance(self.role, Leader) else None

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; -1 while it is unknown."""
        return self.replica.high_watermark

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    # ------------------------------------------------------------------------------------------------- append, commit

    def append(self, frames: list[bytes], *, atomic: bool = True) -> int:
        """Append metadata frames and return the last offset; committed once the high watermark has passed it.

        Atomic frames share a batch; other frames are split where a batch would exceed Kafka's limit.
        """
        if not isinstance(self.role, Leader):
            raise RaftError(f"node {self.node_id} does not lead epoch {self.epoch}")
        now = self.replica.clock.time_ms()
        groups = list(frame_groups(frames))
        if atomic and len(groups) > 1:
            raise BatchTooLargeError(f"{len(frames)} records do not fit one batch of at most {MAX_BATCH_BYTES} bytes")
        last_offset = self.log.end_offset - 1
        for group in groups:
            records = [SimpleRecord(now, None, frame) for frame in group]
            batch = build_batch(records, base_offset=self.log.end_offset, leader_epoch=self.role.epoch)
            last_offset = self.log.append(batch)
            self.snapshots.add_new_bytes(len(batch), now)
        return last_offset

    def unflushed(self) -> int | None:
        """The end offset that a `sync` would make durable now; None when the whole log is durable."""
        end = self.log.end_offset
        return end if end > self.replica.durable_end_offset else None

    def sync(self) -> None:
        """Block until all appended batches are on disk; may run on a second thread."""
        self.log.sync()

    def flushed(self, end_offset: int) -> bool:
        """A `sync` up to `end_offset` is done. Returns whether the high watermark moved."""
        replica = self.replica
        replica.durable_end_offset = max(replica.durable_end_offset, min(end_offset, replica.log.end_offset))
        if isinstance(self.role, Leader):
            return self.fetch_server.advance()
        return self.fetcher.follow_high_watermark()

    def committed(self, start_offset: int) -> Iterator[CommittedBatch]:
        """The committed batches from `start_offset` on."""
        if start_offset >= self.high_watermark:
            return
        for header, data in self.log.batches(start_offset):
            if header.last_offset >= self.high_watermark:
                return
            yield CommittedBatch(
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                header.max_timestamp,
                header.is_control,
                data,
            )

    # ------------------------------------------------------------------------------------------- snapshots, describing

    def snapshot_id(self, last_offset: int) -> SnapshotId:
        """The id of a snapshot that covers the log up to `last_offset`."""
        return SnapshotId(last_offset + 1, self.log.epochs.epoch_at(last_offset))

    def quorum_at(self, snapshot_id: SnapshotId) -> tuple[int, VoterSet]:
        """kraft.version and the voters for a snapshot."""
        return self.replica.history.at(snapshot_id.end_offset)

    def write_snapshot(
        self,
        snapshot_id: SnapshotId,
        frames: Iterable[bytes],
        last_contained_ms: int,
        quorum: tuple[int, VoterSet] | None = None,
    ) -> None:
        """Write and sync the file; may run on a second thread, with the result of `quorum_at`. The caller then calls
        `snapshot_written` on the owner's thread.
        """
        kraft_version, voters = quorum or self.quorum_at(snapshot_id)
        self.snapshots.write(snapshot_id, frames, last_contained_ms, kraft_version=kraft_version, voters=voters)

    def snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """Register the snapshot; remove snapshots and segments that are past their retention."""
        self.snapshots.written(snapshot_id)
        oldest = self.snapshots.clean(self.log.size)
        if oldest is not None:
            self.log.delete_before(oldest.end_offset)

    def describe(self) -> QuorumView:
        """The quorum as its leader sees it. Raises RaftError on a node that does not lead."""
        role = self.role
        if not isinstance(role, Leader):
            raise RaftError(f"node {self.node_id} does not lead epoch {self.epoch}")
        voters = [self._progress(role, voter) for voter in self.voters.voters]
        observers = [
            ReplicaProgress(key.id, key.directory_id, state.fetch_offset, state.last_fetch_ms, state.last_caught_up_ms)
            for key, state in role.replicas.items()
            if state.fetched_ms >= 0 and not self.voters.contains(key.id, key.directory_id)
        ]
        return QuorumView(self.leader_id, self.epoch, self.high_watermark, voters, observers)

    def _progress(self, role: Leader, voter: Voter) -> ReplicaProgress:
        if voter.key.matches(self.replica.key):
            now = self.replica.clock.time_ms()
            return ReplicaProgress(voter.id, voter.directory_id, self.log.end_offset, now, now)
        state = role.replica(voter)
        if state is None:
            return ReplicaProgress(voter.id, voter.directory_id, -1, -1, -1)
        return ReplicaProgress(
            voter.id, voter.directory_id, state.fetch_offset, state.last_fetch_ms, state.last_caught_up_ms
        )
