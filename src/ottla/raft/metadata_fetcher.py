"""The follower's side of Fetch and FetchSnapshot: a replica that does not lead fetches, and learns the leader's id.

The next fetch is sent only when all fetched batches are on disk: the leader counts the fetch offset as a promise. One
request is in flight at a time. A response counts only while the role that sent the request lasts.
"""

from __future__ import annotations

from functools import partial

from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_NODE, NodeId
from ottla.protocol.generated import fetch_snapshot_request as snapshot_messages
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.generated.fetch_response import FetchResponse, PartitionData
from ottla.protocol.generated.fetch_snapshot_response import FetchSnapshotResponse
from ottla.raft.answers import hinted_address, metadata_partition
from ottla.raft.config import Address
from ottla.raft.elections import Elections
from ottla.raft.errors import RaftError, SnapshotError
from ottla.raft.replica import Replica
from ottla.raft.roles import Follower, Observer, Role, Unattached
from ottla.raft.snapshots import Snapshot, SnapshotId, decode_snapshot

log = get_logger(__name__)

MAX_WAIT_MS = 500
"""How long the leader may hold a fetch back (Kafka's own figure)."""
MAX_SNAPSHOT_BYTES = 1 << 30


class _Download:
    """A snapshot that is being fetched. It becomes a file when it is complete and its checksums match."""

    def __init__(self, snapshot_id: SnapshotId) -> None:
        self.id = snapshot_id
        self.data = bytearray()


class MetadataFetcher:
    def __init__(self, replica: Replica, elections: Elections) -> None:
        self._replica = replica
        self._elections = elections
        self._requesting_role: Role | None = None
        """The role whose request is in flight."""
        self._next_request_ms = 0.0
        self._download: _Download | None = None
        self._turn = 0
        self.leader_high_watermark = -1
        self.loaded_snapshot: tuple[Snapshot, SnapshotId] | None = None
        """A snapshot that has replaced the log and that the driver has not taken."""
        self.refusals = 0
        """Answers that would have removed committed records."""

    # ------------------------------------------------------------------------------------------------------------ time

    def tick(self) -> None:
        replica = self._replica
        role = replica.role
        now = replica.now_ms()
        if isinstance(role, Observer) and role.leader is not None and now >= role.deadline_ms:
            role.leader, role.in_touch = None, False  # ask the voters in turn; the leader of the epoch stays recorded
        if not isinstance(role, Follower | Observer | Unattached) or self._requesting_role is role:
            return
        if now < self._next_request_ms or replica.durable_end_offset < replica.log.end_offset:
            return
        target = self._target(role)
        if target is None:
            self._next_request_ms = now + replica.config.fetch_timeout_ms
            return
        self._requesting_role = role
        address, node_id = target
        if self._download is not None and not isinstance(role, Unattached) and role.leader is not None:
            replica.send(address, node_id, self._snapshot_request(self._download), partial(self._on_snapshot, role))
        else:
            replica.send(address, node_id, self._fetch_request(), partial(self._on_fetched, role))

    def next_deadline_ms(self) -> float | None:
        role = self._replica.role
        if not isinstance(role, Follower | Observer | Unattached):
            return None
        silent = role.deadline_ms if isinstance(role, Observer) and role.leader is not None else None
        if self._requesting_role is role or self._replica.durable_end_offset < self._replica.log.end_offset:
            return silent
        return self._next_request_ms if silent is None else min(silent, self._next_request_ms)

    def _target(self, role: Follower | Observer | Unattached) -> tuple[Address, NodeId] | None:
        """The leader; without a leader, each voter and bootstrap server in turn."""
        replica = self._replica
        if not isinstance(role, Unattached) and role.leader is not None:
            return role.leader, role.leader_id
        targets = [
            (address, voter.id)
            for voter in replica.voters.voters
            if voter.id != replica.key.id and (address := replica.address_of(voter.id)) is not None
        ]
        own_addresses = {Address(endpoint.host, endpoint.port) for endpoint in replica.config.endpoints}
        voter_addresses = {address for address, _ in targets} | own_addresses
        targets += [
            (address, NO_NODE) for address in replica.config.bootstrap_servers if address not in voter_addresses
        ]
        if not targets:
            return None
        self._turn += 1
        return targets[self._turn % len(targets)]

    def _pause(self) -> None:
        self._next_request_ms = self._replica.now_ms() + self._replica.config.retry_backoff_ms

    # ----------------------------------------------------------------------------------------------------------- fetch

    def _fetch_request(self) -> FetchRequest:
        replica = self._replica
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=replica.epoch,
            fetch_offset=replica.log.end_offset,
            last_fetched_epoch=replica.last_epoch,
            log_start_offset=replica.log.start_offset,
            partition_max_bytes=replica.config.fetch_max_bytes,
            replica_directory_id=replica.key.directory_id,
            high_watermark=replica.high_watermark,
        )
        return FetchRequest(
            cluster_id=replica.config.cluster_id or None,
            replica_state=ReplicaState(replica.key.id, -1),
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=0,
            max_bytes=replica.config.fetch_max_bytes,
            topics=[FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])],
        )

    def _is_current(self, role: Role, response: object, *, connection_refused: bool) -> bool:
        """Whether the response exists and belongs to the current role."""
        if self._requesting_role is role:
            self._requesting_role = None
        if self._replica.role is not role:
            return False
        if response is None:
            self._pause()
            if isinstance(role, Observer):
                role.deadline_ms = (
                    min(role.deadline_ms, self._replica.now_ms()) if connection_refused else role.deadline_ms
                )
            elif connection_refused:
                self._elections.on_leader_down()
            return False
        return True

    def _on_fetched(self, role: Role, response: object, connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        if not self._is_current(role, response, connection_refused=connection_refused) or not isinstance(
            response, FetchResponse
        ):
            return
        if response.error_code or len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            log.warning("metadata_fetch.refused", reason=ErrorCode(response.error_code).name)
            self._pause()
            return
        partition = response.responses[0].partitions[0]
        hint = partition.current_leader
        leader = hinted_address(hint.leader_id, response.node_endpoints)
        if self._replica.observe(hint.leader_epoch, hint.leader_id, leader):
            return
        if partition.error_code or not isinstance(role, Follower | Observer) or role.leader is None:
            self._pause()
            return
        self._in_touch(role)
        self._handle_partition(partition)

    def _in_touch(self, role: Follower | Observer) -> None:
        now_ms = self._replica.now_ms()
        role.in_touch = True
        role.deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        self._replica.last_leader_contact = (role.leader_id, now_ms)

    def _handle_partition(self, partition: PartitionData) -> None:
        replica = self._replica
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            return
        if partition.snapshot_id.epoch >= 0:
            self._download = _Download(SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch))
            log.info("snapshot.download_begun", snapshot=self._download.id.file_name())
            return
        self._download = None
        try:
            replica.append_fetched(bytes(partition.records or b""))
        except (RaftError, KafkaError) as error:
            log.error("metadata_fetch.damaged", error=str(error))
            self._pause()
            return
        self.leader_high_watermark = partition.high_watermark
        self.follow_high_watermark()

    def follow_high_watermark(self) -> bool:
        """Raise the high watermark to the leader's, within the durable log. Returns whether it moved."""
        replica = self._replica
        return replica.raise_high_watermark(min(self.leader_high_watermark, replica.durable_end_offset))

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Truncate to the offset where the logs diverge. The leader's `epoch` ends at `end_offset`; ours may end before."""
        replica = self._replica
        own_epoch, own_end = replica.end_offset_for_epoch(epoch)
        divergence = min(own_end, end_offset) if own_epoch == epoch else own_end
        if not self._loses_committed(f"a truncation to {divergence}", divergence):
            replica.truncate(divergence)

    def _loses_committed(self, change: str, end_offset: int) -> bool:
        """A leader that lost committed records, or lies, must not make this replica lose them too. The replica keeps its
        log and asks again later: the next leader may have the records.
        """
        lost = end_offset < self._replica.high_watermark
        if lost:
            self.refusals += 1
            log.error(
                "metadata_fetch.refused", reason=f"{change} is below the high watermark {self._replica.high_watermark}"
            )
            self._pause()
        return lost

    # -------------------------------------------------------------------------------------------------------- snapshot

    def _snapshot_request(self, download: _Download) -> snapshot_messages.FetchSnapshotRequest:
        replica = self._replica
        partition = snapshot_messages.PartitionSnapshot(
            partition=0,
            current_leader_epoch=replica.epoch,
            snapshot_id=snapshot_messages.SnapshotId(download.id.end_offset, download.id.epoch),
            position=len(download.data),
            replica_directory_id=replica.key.directory_id,
        )
        return snapshot_messages.FetchSnapshotRequest(
            cluster_id=replica.config.cluster_id or None,
            replica_id=replica.key.id,
            max_bytes=replica.config.fetch_snapshot_max_bytes,
            topics=[snapshot_messages.TopicSnapshot(METADATA_TOPIC, [partition])],
        )

    def _on_snapshot(self, role: Role, response: object, connection_refused: bool) -> None:  # noqa: FBT001 - OnResponse
        if not self._is_current(role, response, connection_refused=connection_refused) or not isinstance(
            response, FetchSnapshotResponse
        ):
            return
        partition = None if response.error_code else metadata_partition(response)
        download = self._download
        if partition is None or download is None:
            self._download = None
            self._pause()
            return
        hint = partition.current_leader
        if self._replica.observe(
            hint.leader_epoch, hint.leader_id, hinted_address(hint.leader_id, response.node_endpoints)
        ):
            return
        wrong = (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) != download.id
        if partition.error_code or wrong or partition.position != len(download.data):
            self._download = (
                None  # deleted meanwhile, or a different snapshot: the next fetch names the snapshot to download
            )
            self._pause()
            return
        if isinstance(role, Follower | Observer):
            self._in_touch(role)
        download.data += bytes(partition.unaligned_records or b"")
        if len(download.data) >= min(partition.size, MAX_SNAPSHOT_BYTES):
            self._download = None
            self._adopt(download)

    def _adopt(self, download: _Download) -> None:
        """Write the snapshot before the log is dropped: after a crash, a start finds a snapshot that covers the log."""
        replica = self._replica
        name = download.id.file_name()
        if self._loses_committed(f"snapshot {name}", download.id.end_offset):
            return
        try:
            snapshot = decode_snapshot(bytes(download.data), name)
        except SnapshotError as error:
            log.error("snapshot.damaged", error=str(error))
            self._pause()
            return
        replica.snapshots.adopt(download.id, bytes(download.data))
        replica.log.start_over(download.id.end_offset, download.id.epoch)
        replica.history.load_snapshot(snapshot, download.id)
        replica.durable_end_offset = download.id.end_offset
        replica.raise_high_watermark(download.id.end_offset)
        replica.adjust_to_voters()
        self.loaded_snapshot = snapshot, download.id
        log.info("snapshot.loaded", snapshot=name, bytes=len(download.data))
