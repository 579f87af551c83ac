"""The leader of its epoch: the fetch offset of every replica, and the high watermark that follows from them.

A voter's fetch offset means that all batches below are on that voter's disk. The high watermark is the offset that a
majority of the voters has reached. It stays unset below the epoch's first record: records of older epochs commit only
together with a record of this epoch (Raft, figure 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.model.ids import NodeId
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey, Voter, VoterSet

OBSERVER_SESSION_MS = 300_000.0
"""An observer without a fetch for this time is dropped (Kafka's own figure)."""
MAX_OBSERVERS = 10_000


@dataclass(slots=True)
class ReplicaState:
    key: ReplicaKey
    fetch_offset: int = -1
    fetched_ms: float = -1.0
    """Monotonic; -1 before its first fetch."""
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    end_at_last_fetch: int = -1
    """The leader's end offset at the time of the last fetch."""
    begin_sent_ms: float | None = None
    """The time of the last BeginQuorumEpoch to this replica."""


@dataclass(slots=True)
class Leader:
    epoch: int
    key: ReplicaKey
    epoch_start_offset: int
    began_ms: float = 0.0
    high_watermark: int = -1
    """-1 until a record of this epoch is on a majority."""
    replicas: dict[ReplicaKey, ReplicaState] = field(default_factory=dict)
    voted: ReplicaKey | None = None
    deadline_ms: float = 0.0

    @property
    def leader_id(self) -> NodeId:
        return self.key.id

    def quorum_state(self) -> QuorumState:
        return QuorumState.of(self.epoch, self.key.id, None)

    def grants(self, _candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        del up_to_date, pre_vote
        return False

    def replica(self, voter: Voter) -> ReplicaState | None:
        """The progress of a voter. Without a directory id, the replica with the voter's id that fetched last counts."""
        latest: ReplicaState | None = None
        for key, state in self.replicas.items():
            if (
                key.id == voter.id
                and voter.key.matches(key)
                and (latest is None or state.fetched_ms > latest.fetched_ms)
            ):
                latest = state
        return latest

    def fetched(self, key: ReplicaKey, offset: int, end_offset: int, now_ms: float, wall_ms: int) -> ReplicaState:
        """A replica fetches from `offset`: its log holds all batches below."""
        state = self.replicas.get(key)
        if state is None:
            if len(self.replicas) >= MAX_OBSERVERS:
                del self.replicas[min(self.replicas, key=lambda replica_key: self.replicas[replica_key].fetched_ms)]
            state = self.replicas[key] = ReplicaState(key)
        if offset >= end_offset:
            state.last_caught_up_ms = wall_ms
        elif 0 <= state.end_at_last_fetch <= offset:
            state.last_caught_up_ms = max(state.last_caught_up_ms, state.last_fetch_ms)
        state.end_at_last_fetch = end_offset
        state.fetch_offset = offset
        state.fetched_ms = now_ms
        state.last_fetch_ms = wall_ms
        return state

    def forget_observers(self, voters: VoterSet, now_ms: float) -> None:
        expired_keys = [
            key
            for key, state in self.replicas.items()
            if now_ms - state.fetched_ms > OBSERVER_SESSION_MS and not voters.contains(key.id, key.directory_id)
        ]
        for key in expired_keys:
            del self.replicas[key]

    def advance(self, voters: VoterSet, durable_end_offset: int) -> bool:
        """Returns whether the high watermark moved. A leader that has left the voter set does not count itself."""
        offsets = sorted((self._offset(voter, durable_end_offset) for voter in voters.voters), reverse=True)
        majority_offset = offsets[len(offsets) // 2]
        if majority_offset <= self.epoch_start_offset or majority_offset <= self.high_watermark:
            return False
        self.high_watermark = majority_offset
        return True

    def _offset(self, voter: Voter, durable_end_offset: int) -> int:
        if voter.key.matches(self.key):
            return durable_end_offset
        state = self.replica(voter)
        return -1 if state is None else state.fetch_offset

    def in_touch_with_majority(self, voters: VoterSet, now_ms: float, timeout_ms: float) -> bool:
        """Check-quorum: a leader must resign when a majority of the voters does not fetch."""
        fetching_voters = 0
        for voter in voters.voters:
            state = None if voter.key.matches(self.key) else self.replica(voter)
            fetched_ms = (
                now_ms if voter.key.matches(self.key) else max(state.fetched_ms if state else -1.0, self.began_ms)
            )
            fetching_voters += now_ms - fetched_ms < timeout_ms
        return fetching_voters > len(voters.voters) // 2
