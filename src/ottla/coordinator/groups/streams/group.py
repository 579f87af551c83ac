"""A streams group: its topology, its members, who should have which tasks (the target), and who has which now.

Durable is what records hold; the configured topology, the endpoints' epoch and a wish to shut down live as long as the
shard does, as in Kafka. Changed by `replay`, those three by a heartbeat that has succeeded; states are read off.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.coordinator.groups.assigned_group import AssignedGroup
from ottla.coordinator.groups.group import GroupKind, PartitionCheck
from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.groups.streams import group_records
from ottla.coordinator.groups.streams.configuration import ConfiguredTopology
from ottla.coordinator.groups.streams.members import StreamsMember
from ottla.coordinator.groups.streams.owners import TaskOwners
from ottla.coordinator.groups.streams.tasks import TargetTasks
from ottla.coordinator.groups.streams.topology import StreamsTopology
from ottla.coordinator.records import CoordinatorRecord
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid

_MEMBER_EPOCHS_FROM = 9
PROTOCOL_TYPE = "streams"


class StreamsGroupState(Enum):
    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup(AssignedGroup[StreamsMember, TargetTasks]):
    kind = GroupKind.STREAMS
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = 0
        self.assignment_configs: Mapping[str, str] = {}
        """Those of the last assignment."""
        self.topology: StreamsTopology | None = None
        self.owners = TaskOwners()
        self.configured: ConfiguredTopology | None = None
        self.configured_hash = 0
        """The metadata hash of the topics that `configured` was made with."""
        self.endpoint_epoch = 0
        self.shutdown_requested_by: str | None = None

    # Reading

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of_source

    # Offsets and the end of the group

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, version: int, transactional: bool = False
    ) -> PartitionCheck | None:
        """The current member epoch, or an older epoch for sources of tasks that the member has had since then
        (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and version < _MEMBER_EPOCHS_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if epoch == member.member_epoch:
            return None
        topology = self.topology
        if epoch > member.member_epoch or topology is None:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

        def check(topic: str, _topic_id: Uuid, partition: int) -> None:
            subtopology = topology.subtopology_of_source.get(topic)
            since = None if subtopology is None else member.assignment_epoch(subtopology, partition)
            if since is None or epoch < since:
                raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

        return check

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        if epoch != self.member(member_id or "").member_epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def validate_offset_delete(self) -> None:
        """Always allowed: topics that the group reads are refused one by one."""

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_records.group_tombstones(self.group_id, list(self.members))

    def unused_since(self, offset: CommittedOffset) -> int | None:
        return offset.commit_timestamp_ms

    # Replay

    def put(self, member: StreamsMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self.owners.release(old)
        self.members[member.member_id] = member
        self.owners.take(member)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.owners.release(member)
        if not self.members:
            self.shutdown_requested_by = None
