"""The leader's side of Fetch and FetchSnapshot: a replica's fetch offset is its progress.

A fetch without new data is parked until a record, a higher high watermark or its deadline. When the leader steps down,
all parked fetches are answered at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.protocol.generated import fetch_snapshot_response as snapshot_messages
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest
from ottla.protocol.generated.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.generated.fetch_response import SnapshotId as FetchSnapshotId
from ottla.protocol.generated.fetch_snapshot_request import FetchSnapshotRequest, PartitionSnapshot
from ottla.raft.answers import epoch_error, known_leader, leader_endpoints, metadata_partition, wrong_cluster
from ottla.raft.outbound import Reply
from ottla.raft.replica import Replica
from ottla.raft.roles import Leader
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import ReplicaKey

MAX_PARKED = 10_000
_FIRST_REPLICA_STATE_VERSION = 15


@dataclass(slots=True, eq=False)
class _ParkedFetch:
    role: Leader
    key: ReplicaKey
    partition: FetchPartition
    max_bytes: int
    deadline_ms: float
    reply: Reply


class FetchServer:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._parked: list[_ParkedFetch] = []

    # ----------------------------------------------------------------------------------------------------------- fetch

    def on_fetch(self, request: FetchRequest, version: int, reply: Reply) -> None:
        replica = self._replica
        partition = metadata_partition(request)
        if wrong_cluster(replica, request.cluster_id) or partition is None:
            code = ErrorCode.INVALID_REQUEST if partition is None else ErrorCode.INCONSISTENT_CLUSTER_ID
            reply(FetchResponse(error_code=int(code)))
            return
        replica_id = request.replica_state.replica_id if version >= _FIRST_REPLICA_STATE_VERSION else request.replica_id
        code = epoch_error(replica, partition.current_leader_epoch)
        if code is ErrorCode.NONE and (partition.fetch_offset < 0 or partition.last_fetched_epoch < 0):
            code = ErrorCode.INVALID_REQUEST
        role = replica.role
        if code is not ErrorCode.NONE or not isinstance(role, Leader) or replica_id == replica.key.id:
            reply(self._response(self._partition(code or ErrorCode.INVALID_REQUEST)))
            return
        answer = self._validate_offset_and_epoch(partition)
        if answer is not None:
            reply(self._response(answer))
            return
        key = ReplicaKey(replica_id, partition.replica_directory_id)
        self._note(role, key, partition.fetch_offset)
        parked = _ParkedFetch(role, key, partition, request.max_bytes, replica.now_ms() + request.max_wait_ms, reply)
        if len(self._parked) >= MAX_PARKED:
            parked.deadline_ms = 0.0
        self._parked.append(parked)
        self.wake()

    def _note(self, role: Leader, key: ReplicaKey, offset: int) -> None:
        if key.id < 0:
            return  # a client that only reads
        replica = self._replica
        role.fetched(key, offset, replica.log.end_offset, replica.now_ms(), replica.clock.time_ms())
        role.forget_observers(replica.voters, replica.now_ms())
        self.advance()

    def advance(self) -> bool:
        """Move the high watermark to the offset that a majority has on disk. Returns whether it moved."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader) or not role.advance(replica.voters, replica.durable_end_offset):
            return False
        return replica.raise_high_watermark(role.high_watermark)

    def _validate_offset_and_epoch(self, partition: FetchPartition) -> PartitionData | None:
        """The response when the fetch offset is not usable: the log diverges, or the replica needs a snapshot."""
        replica = self._replica
        offset, epoch = partition.fetch_offset, partition.last_fetched_epoch
        start = replica.log.start_offset
        if start == 0 and offset == 0 and epoch == 0:
            return None
        latest = replica.snapshots.latest
        if start > 0 and latest is not None:
            oldest = replica.snapshots.ids[0]
            if offset < start or epoch < oldest.epoch or (offset == start and epoch != oldest.epoch):
                data = self._partition(ErrorCode.NONE)
                data.snapshot_id = FetchSnapshotId(latest.end_offset, latest.epoch)
                return data
        own_epoch, own_end = replica.end_offset_for_epoch(epoch)
        if own_epoch == epoch and own_end >= offset:
            return None
        data = self._partition(ErrorCode.NONE)
        data.diverging_epoch = EpochEndOffset(own_epoch, own_end)
        return data

    def wake(self) -> None:
        """Answer every parked fetch that has new data or has reached its deadline."""
        now = self._replica.now_ms()
        parked_fetches, self._parked = self._parked, []
        for parked in parked_fetches:
            answer = self._try(parked, now)
            if answer is None:
                self._parked.append(parked)
            else:
                parked.reply(answer)

    def _try(self, parked: _ParkedFetch, now: float) -> FetchResponse | None:
        replica = self._replica
        if replica.role is not parked.role:
            return self._response(self._partition(epoch_error(replica, parked.partition.current_leader_epoch)))
        partition = parked.partition
        news = replica.log.end_offset > partition.fetch_offset or replica.high_watermark > partition.high_watermark
        if not news and now < parked.deadline_ms:
            return None
        data = self._partition(ErrorCode.NONE)
        data.records = self._read(partition.fetch_offset, min(parked.max_bytes, partition.partition_max_bytes))
        return self._response(data)

    def _read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches up to the limit, at least a single batch."""
        limit = min(max_bytes, self._replica.config.fetch_max_bytes)
        pieces: list[bytes] = []
        size = 0
        for _, data in self._replica.log.batches(offset):
            if pieces and size + len(data) > limit:
                break
            pieces.append(data)
            size += len(data)
        return b"".join(pieces)

    def next_deadline_ms(self) -> float | None:
        return min((parked.deadline_ms for parked in self._parked), default=None)

    def _partition(self, code: ErrorCode) -> PartitionData:
        replica = self._replica
        leader_id, _ = known_leader(replica)
        leads = isinstance(replica.role, Leader)
        return PartitionData(
            partition_index=0,
            error_code=int(code),
            high_watermark=replica.high_watermark if leads else -1,
            last_stable_offset=-1,
            log_start_offset=replica.log.start_offset,
            current_leader=LeaderIdAndEpoch(leader_id, replica.epoch),
            aborted_transactions=None,
            records=b"",
        )

    def _response(self, partition: PartitionData) -> FetchResponse:
        topic = FetchableTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])
        return FetchResponse(responses=[topic], node_endpoints=leader_endpoints(self._replica, NodeEndpoint))

    # -------------------------------------------------------------------------------------------------------- snapshot

    def on_fetch_snapshot(self, request: FetchSnapshotRequest, _version: int, reply: Reply) -> None:
        replica = self._replica
        partition = metadata_partition(request)
        if wrong_cluster(replica, request.cluster_id) or partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else ErrorCode.INCONSISTENT_CLUSTER_ID
            reply(snapshot_messages.FetchSnapshotResponse(error_code=int(code)))
            return
        reply(self._snapshot_response(self._snapshot_piece(request, partition)))

    def _snapshot_piece(
        self, request: FetchSnapshotRequest, partition: PartitionSnapshot
    ) -> snapshot_messages.PartitionSnapshot:
        replica = self._replica
        snapshot_id = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        answer = snapshot_messages.PartitionSnapshot(
            index=0,
            snapshot_id=snapshot_messages.SnapshotId(*snapshot_id),
            current_leader=snapshot_messages.LeaderIdAndEpoch(known_leader(replica)[0], replica.epoch),
            unaligned_records=b"",
        )
        code = epoch_error(replica, partition.current_leader_epoch)
        role = replica.role
        if code is ErrorCode.NONE and snapshot_id not in replica.snapshots.ids:
            code = ErrorCode.SNAPSHOT_NOT_FOUND
        if code is ErrorCode.NONE and isinstance(role, Leader):
            key = ReplicaKey(request.replica_id, partition.replica_directory_id)
            state = role.replicas.get(key)
            self._note(role, key, state.fetch_offset if state else -1)
            limit = min(max(request.max_bytes, 0), replica.config.fetch_snapshot_max_bytes)
            size, data = replica.snapshots.read(snapshot_id, max(partition.position, 0), limit)
            if not 0 <= partition.position < size:
                code = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                answer.size, answer.position, answer.unaligned_records = size, partition.position, data
        answer.error_code = int(code)
        return answer

    def _snapshot_response(
        self, partition: snapshot_messages.PartitionSnapshot
    ) -> snapshot_messages.FetchSnapshotResponse:
        return snapshot_messages.FetchSnapshotResponse(
            topics=[snapshot_messages.TopicSnapshot(METADATA_TOPIC, [partition])],
            node_endpoints=leader_endpoints(self._replica, snapshot_messages.NodeEndpoint),
        )
