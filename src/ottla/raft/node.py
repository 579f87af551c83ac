"""A replica of the metadata quorum as a synchronous core: it decides, the caller runs its blocking calls.

Rules: the vote is on disk before the node leads; the high watermark covers only what is on disk, and nothing of an
older epoch before a record of this one; a batch is appended whole or not at all. `sync` and `write_snapshot` block and
may run on another thread; everything else belongs to the owner's thread. This release runs quorums of one voter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.env.logging import get_logger
from ottla.env.seams import Clock, Storage
from ottla.model.ids import NO_NODE, ZERO_UUID, NodeId, Uuid, uuid_to_str
from ottla.protocol.generated.k_raft_version_record import KRaftVersionRecord
from ottla.protocol.generated.voters_record import VotersRecord
from ottla.protocol.records import SimpleRecord, build_batch, iterate_records
from ottla.raft.control import control_batch, decode_control, leader_change, quorum_records
from ottla.raft.errors import BatchTooLargeError, MetadataLogError, RaftError
from ottla.raft.metadata_log import MetadataLog, MetadataLogConfig
from ottla.raft.quorum_state import load_quorum_state, store_quorum_state
from ottla.raft.roles import Candidate, Leader, Role, Unattached
from ottla.raft.snapshot_store import SnapshotRetention, SnapshotStore
from ottla.raft.snapshots import MAX_BATCH_BYTES, Snapshot, SnapshotId, frame_groups
from ottla.raft.voters import VoterSet

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    node_id: NodeId
    directory_id: Uuid
    static_voters: VoterSet | None = None
    """controller.quorum.voters; None for a quorum that was formatted with its voters (kraft.version 1)."""
    log: MetadataLogConfig = field(default_factory=MetadataLogConfig)
    retention: SnapshotRetention = field(default_factory=SnapshotRetention)


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch of metadata frames; empty frames for a control batch."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    id: NodeId
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumView:
    """What DescribeQuorum tells."""

    leader_id: NodeId
    leader_epoch: int
    high_watermark: int
    voters: list[ReplicaProgress]
    observers: list[ReplicaProgress]


class RaftNode:
    def __init__(self, storage: Storage, log_dir: str, clock: Clock, config: RaftConfig) -> None:
        """`log_dir` is the `__cluster_metadata-0` folder itself."""
        self._storage = storage
        self._clock = clock
        self._config = config
        self.node_id = config.node_id
        self.log = MetadataLog(storage, log_dir, clock, config.log)
        self.snapshots = SnapshotStore(storage, log_dir, clock, config.retention)
        self.kraft_version = 0
        self.voters = config.static_voters
        self._voters_in_log = False
        self.role: Role = Unattached(0)

    # -------------------------------------------------------------------------------------------------- start and end

    def start(self) -> Snapshot | None:
        """Load the files and become leader. Returns the newest snapshot; `committed` gives what follows it."""
        self._storage.make_dirs(self.log.log_dir)
        state = load_quorum_state(self._storage, self.log.log_dir)
        snapshot = self.snapshots.open()
        base = self.snapshots.latest or SnapshotId(0, 0)
        self.log.open(base.end_offset, base.epoch)
        if self.log.start_offset > base.end_offset:
            raise MetadataLogError(
                f"{self.log.log_dir} begins at offset {self.log.start_offset}, but no snapshot covers what came before"
            )
        self.snapshots.grown(self.log.bytes_past_snapshot, self._clock.time_ms())
        self._load_quorum(snapshot, base)
        self._check_voters()
        epoch = max(state.leader_epoch if state else 0, self.log.epochs.last_epoch(), base.epoch)
        self.role = Unattached(epoch)
        self._elect()
        return snapshot

    def close(self) -> None:
        self.log.close()

    def _load_quorum(self, snapshot: Snapshot | None, base: SnapshotId) -> None:
        """kraft.version and voters: the last word of the log, else of the snapshot, else of the settings."""
        if snapshot is not None and snapshot.voters is not None:
            self.kraft_version, self.voters = snapshot.kraft_version, snapshot.voters
            # The 0-0 checkpoint is not replicated: the first leader repeats its voters in the log.
            self._voters_in_log = base.end_offset > 0
        for offset in self.log.control_offsets:
            if offset < base.end_offset:
                continue
            _, data = next(iter(self.log.batches(offset)))
            for record in iterate_records(data):
                message = decode_control(record)
                if isinstance(message, KRaftVersionRecord):
                    self.kraft_version = message.k_raft_version
                elif isinstance(message, VotersRecord):
                    self.voters = VoterSet.from_record(message)
                    self._voters_in_log = True

    def _check_voters(self) -> None:
        if self.voters is None:
            raise RaftError(
                "no voters are known: set controller.quorum.voters, or format the storage with --standalone or "
                "--initial-controllers"
            )
        if not self.voters.contains(self.node_id, self._config.directory_id):
            directory = uuid_to_str(self._config.directory_id)
            raise RaftError(f"node {self.node_id} with directory {directory} is not a voter of {self.voters.ids}")
        if len(self.voters.voters) > 1:
            raise RaftError(f"the quorum has the voters {self.voters.ids}; this release runs a quorum of one")

    def _elect(self) -> None:
        voters = self._known_voters()
        directory = self._config.directory_id if self.kraft_version else ZERO_UUID
        candidate = Candidate(self.role.epoch + 1, self.node_id, directory)
        self._become(candidate)
        leader = Leader(candidate.epoch, self.node_id, self.log.end_offset)
        self._become(leader)
        records = [leader_change(self.node_id, voters.ids, voters.ids)]
        if not self._voters_in_log:
            records += quorum_records(self.kraft_version, voters)
            self._voters_in_log = True
        start = leader.epoch_start_offset
        self.log.append(control_batch(records, base_offset=start, epoch=leader.epoch, now_ms=self._clock.time_ms()))
        self.log.sync()
        leader.advance(self.log.end_offset)
        log.info("quorum.leader_elected", epoch=leader.epoch, offset=start, kraft_version=self.kraft_version)

    def _become(self, role: Role) -> None:
        store_quorum_state(
            self._storage,
            self.log.log_dir,
            role.quorum_state(),
            kraft_version=self.kraft_version,
            voters=self._known_voters().ids,
        )
        self.role = role

    def _known_voters(self) -> VoterSet:
        if self.voters is None:
            raise RaftError("the node was not started")
        return self.voters

    # ------------------------------------------------------------------------------------------------- append, commit

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> NodeId:
        return self.role.node_id if isinstance(self.role, Leader) else NO_NODE

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; -1 when it is not known."""
        return self.role.high_watermark if isinstance(self.role, Leader) else -1

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def append(self, frames: list[bytes], *, atomic: bool = True) -> int:
        """Append metadata frames and return the last offset; committed once `flushed` has passed it.

        Atomic frames go into one batch; others are split where a batch would grow over Kafka's limit.
        """
        if not isinstance(self.role, Leader):
            raise RaftError(f"node {self.node_id} does not lead epoch {self.epoch}")
        now = self._clock.time_ms()
        groups = list(frame_groups(frames))
        if atomic and len(groups) > 1:
            raise BatchTooLargeError(f"{len(frames)} records do not fit one batch of at most {MAX_BATCH_BYTES} bytes")
        last_offset = self.log.end_offset - 1
        for group in groups:
            records = [SimpleRecord(now, None, frame) for frame in group]
            batch = build_batch(records, base_offset=self.log.end_offset, leader_epoch=self.role.epoch)
            last_offset = self.log.append(batch)
            self.snapshots.grown(len(batch), now)
        return last_offset

    def unflushed(self) -> int | None:
        """The end offset that a `sync` started now would make durable; None when everything is."""
        end = self.log.end_offset
        return end if end > self.high_watermark else None

    def sync(self) -> None:
        """Block until everything appended so far is on disk; may run on another thread."""
        self.log.sync()

    def flushed(self, end_offset: int) -> bool:
        """A `sync` that began when the end was `end_offset` is done. Whether the high watermark moved."""
        return isinstance(self.role, Leader) and self.role.advance(end_offset)

    def committed(self, start_offset: int) -> Iterator[Batch]:
        """The committed batches from `start_offset` on."""
        for header, data in self.log.batches(start_offset):
            if header.last_offset >= self.high_watermark:
                return
            frames = [] if header.is_control else [record.value or b"" for record in iterate_records(data)]
            yield Batch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, frames)

    # ------------------------------------------------------------------------------------------- snapshots, describing

    def snapshot_id(self, last_offset: int) -> SnapshotId:
        """The name of a snapshot that holds everything up to `last_offset`."""
        return SnapshotId(last_offset + 1, self.log.epochs.epoch_at(last_offset))

    def write_snapshot(self, snapshot_id: SnapshotId, frames: Iterable[bytes], last_contained_ms: int) -> None:
        """Write and sync the file; may run on another thread. `snapshot_written` follows on the owner's thread."""
        self.snapshots.write(
            snapshot_id, frames, last_contained_ms, kraft_version=self.kraft_version, voters=self.voters
        )

    def snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """Count the snapshot and remove what is past its retention."""
        self.snapshots.written(snapshot_id)
        oldest = self.snapshots.clean(self.log.size)
        if oldest is not None:
            self.log.delete_before(oldest.end_offset)

    def describe(self) -> QuorumView:
        now = self._clock.time_ms()
        end = self.log.end_offset
        voters = [ReplicaProgress(v.id, v.directory_id, end, now, now) for v in self._known_voters().voters]
        return QuorumView(self.leader_id, self.epoch, self.high_watermark, voters, [])
