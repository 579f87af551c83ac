"""A consumer group: its members, who should have what (the target), and who has what now.

Durable is all but `refresh_due` and what follows from the rest. Changed by `replay` only; states are not stored but
read off the epochs.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from ottla.coordinator.groups.assigned_group import AssignedGroup
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer import group_records
from ottla.coordinator.groups.consumer.members import (
    AssignedPartitions,
    ConsumerMember,
    TargetPartitions,
)
from ottla.coordinator.groups.consumer.subscriptions import Subscriptions
from ottla.coordinator.groups.group import GroupKind, PartitionCheck
from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.records import CoordinatorRecord
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.java_order import strings_in_java_order

log = get_logger(__name__)

NO_TARGET: TargetPartitions = {}
_UNOWNED = -1
_MEMBER_EPOCHS_FROM = 9


class ConsumerGroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(AssignedGroup[ConsumerMember, TargetPartitions]):
    kind = GroupKind.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.subscriptions = Subscriptions()
        self.has_partition_metadata = False
        """A record that Kafka wrote before 4.1, to be deleted with the next change."""
        self._owners: dict[Uuid, dict[int, int]] = {}
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self.classic_member_count = 0

    # Reading

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None) -> TargetPartitions:
        """A static member that returns under a new id has the target of the member that it replaces."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.targets.get(member_id, NO_TARGET)

    def owner_epoch(self, topic_id: Uuid, partition: int) -> int:
        """The member epoch of the partition's owner (-2: a static member that is away); -1 when the partition is
        free."""
        return self._owners.get(topic_id, {}).get(partition, _UNOWNED)

    def is_free(self, topic_id: Uuid, partition: int) -> bool:
        return self.owner_epoch(topic_id, partition) == _UNOWNED

    def preferred_assignor(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> str | None:
        """The assignor that most members ask for, were `new` in the place of `old`."""
        counts = self._assignors.copy()
        if old is not None and old.server_assignor is not None:
            counts[old.server_assignor] -= 1
        if new is not None and new.server_assignor is not None:
            counts[new.server_assignor] += 1
        names = strings_in_java_order(name for name, count in counts.items() if count > 0)
        return max(names, key=lambda name: counts[name], default=None)

    def supports_classic_protocols(self, protocol_type: str, names: list[str]) -> bool:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty:
            return bool(names)
        return any(self._classic_protocols[name] == self.classic_member_count for name in names)

    # Offsets and the end of the group

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, version: int, transactional: bool = False
    ) -> PartitionCheck | None:
        """The current member epoch, or an older epoch for partitions that the member has had since then (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and not member.uses_classic_protocol and version < _MEMBER_EPOCHS_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if epoch == member.member_epoch:
            return None
        stale = _stale(member)
        if epoch > member.member_epoch:
            raise KafkaError(stale)

        def check(_topic: str, topic_id: Uuid, partition: int) -> None:
            since = member.assignment_epoch(topic_id, partition)
            if since is None or epoch < since:
                raise KafkaError(stale)

        return check

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.member_epoch:
            raise KafkaError(_stale(member))

    def validate_offset_delete(self) -> None:
        """Always allowed: topics that the group reads are refused one by one."""

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_records.group_tombstones(self.group_id, list(self.members), list(self.subscriptions.resolved))

    def unused_since(self, offset: CommittedOffset) -> int | None:
        return offset.commit_timestamp_ms

    # Replay

    def put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(old, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, None)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]

    def _count(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        self.subscriptions.replace(old, new)
        for member, sign in ((old, -1), (new, 1)):
            if member is None:
                continue
            if member.server_assignor is not None:
                self._assignors[member.server_assignor] += sign
            if member.classic is not None:
                self.classic_member_count += sign
                for name, _ in member.classic.protocols:
                    self._classic_protocols[name] += sign
        if old is not None:
            self._disown(old.assigned, old.member_epoch)
            self._disown(old.pending_revocation, old.member_epoch)
        if new is not None:
            self._own(new, new.assigned)
            self._own(new, new.pending_revocation)

    def _disown(self, partitions: AssignedPartitions, epoch: int) -> None:
        for topic_id, owned in partitions.items():
            owners = self._owners.get(topic_id, {})
            for partition in owned:
                if owners.get(partition) == epoch:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)

    def _own(self, member: ConsumerMember, partitions: AssignedPartitions) -> None:
        for topic_id, owned in partitions.items():
            owners = self._owners.setdefault(topic_id, {})
            for partition in owned:
                epoch = owners.get(partition)
                if epoch is not None and epoch >= member.member_epoch:
                    log.error("partition.owned_twice", group=self.group_id, member=member.member_id, epoch=epoch)
                owners[partition] = member.member_epoch


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
