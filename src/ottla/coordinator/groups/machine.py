"""The group machine: the state and the decisions of one shard of the group coordinator.

Every method with a waiter decides: it returns records and answers. Only `replay` changes durable state: on the live
path right after the append, on load for the whole log. Both paths end in the same state. Reads see all appended
records; their answers, like all answers, leave once those records are committed. `GroupCoordinator` calls the parts
(`consumer`, `offset_requests`, `listing`, ...) directly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter, answered
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.group_records import describes, group_from_record, new_group_record
from ottla.coordinator.groups.classic.join import Join
from ottla.coordinator.groups.classic.membership import ClassicMembership
from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.classic.sync import Sync
from ottla.coordinator.groups.expiry import GroupExpiry
from ottla.coordinator.groups.group import Group, GroupKind
from ottla.coordinator.groups.listing import GroupListing
from ottla.coordinator.groups.offset_store import CommittedOffset, OffsetStore
from ottla.coordinator.groups.offsets import OffsetRequests
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.transactional_offsets import TransactionalOffsets
from ottla.coordinator.records import CoordinatorRecord, GroupKindRecord, GroupMetadataRecord, OffsetCommitRecord
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ProducerId, TopicPartition, Uuid
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest
from ottla.protocol.generated.sync_group_request import SyncGroupRequest

if TYPE_CHECKING:
    from ottla.coordinator.groups.consumer.group import ConsumerGroup
    from ottla.coordinator.groups.consumer.replay import ConsumerReplay
    from ottla.coordinator.groups.consumer.service import ConsumerGroups
    from ottla.coordinator.groups.share.replay import ShareReplay
    from ottla.coordinator.groups.share.service import ShareGroups
    from ottla.coordinator.groups.streams.replay import StreamsReplay
    from ottla.coordinator.groups.streams.service import StreamsGroups

_REPLACEABLE = (GroupKind.CONSUMER, GroupKind.STREAMS)


class GroupMachine:
    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._store = OffsetStore()
        self._live = False
        self._rebalance = Rebalance(self._context)
        self._join = Join(self._context, self._rebalance)
        self._sync = Sync(self._context, self._rebalance)
        self._membership = ClassicMembership(self._context, self._rebalance)
        self.offset_requests = OffsetRequests(self._context, self._rebalance, self._store)
        self.transactional_offsets = TransactionalOffsets(self._context)
        self.listing = GroupListing(self._context, self._store)
        self._expiry = GroupExpiry(self._context, self._store)

    # The modules of a kind are imported with its first group: most nodes start with classic groups or none.

    @cached_property
    def consumer(self) -> ConsumerGroups:
        """The requests of consumer groups."""
        from ottla.coordinator.groups.consumer.service import ConsumerGroups

        return ConsumerGroups(self._context, self._rebalance)

    @cached_property
    def _consumer_replay(self) -> ConsumerReplay:
        from ottla.coordinator.groups.consumer.replay import ConsumerReplay

        return ConsumerReplay(self._context)

    @cached_property
    def streams(self) -> StreamsGroups:
        """The requests of streams groups."""
        from ottla.coordinator.groups.streams.service import StreamsGroups

        return StreamsGroups(self._context)

    @cached_property
    def _streams_replay(self) -> StreamsReplay:
        from ottla.coordinator.groups.streams.replay import StreamsReplay

        return StreamsReplay(self._context)

    @cached_property
    def share(self) -> ShareGroups:
        """The requests of share groups."""
        from ottla.coordinator.groups.share.service import ShareGroups

        return ShareGroups(self._context)

    @cached_property
    def _share_replay(self) -> ShareReplay:
        from ottla.coordinator.groups.share.replay import ShareReplay

        return ShareReplay(self._context)

    def _has(self, kind: GroupKind) -> bool:
        return any(group.kind is kind for group in self._context.groups.values())

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self._context.groups.get(group_id)
        return self.consumer.find(group_id) if group is not None and group.kind is GroupKind.CONSUMER else None

    @property
    def groups(self) -> Mapping[str, Group]:
        return self._context.groups

    @property
    def offsets(self) -> OffsetStore:
        return self._store

    # The classic protocol, of members of classic groups and of consumer groups

    def needs_creation(self, group_id: str) -> bool:
        """The group does not exist, or is an empty group of a kind that a classic group may replace."""
        group = self._context.groups.get(group_id)
        return group is None or (group.kind in _REPLACEABLE and group.is_empty)

    def create_group(self, group_id: str, waiter: Waiter) -> GroupDecision:
        """An event before the first join: the group exists once its record does. The answer is None."""
        if not self.needs_creation(group_id):
            return answered(waiter, None)
        group = self._context.groups.get(group_id)
        tombstones = [] if group is None else group.tombstones()
        return answered(waiter, None, *tombstones, new_group_record(group_id, self._context.clock.time_ms()))

    def join(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter) -> GroupDecision:
        group = self._consumer_group(request.group_id)
        if group is not None and not group.is_empty:
            return self.consumer.classic_members.join(group, caller, request, waiter)
        return self._join.join(caller, request, waiter)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> GroupDecision:
        group = self._consumer_group(request.group_id)
        if group is not None and not group.is_empty:
            return self.consumer.classic_members.sync(group, request, waiter)
        return self._sync.sync(request, waiter)

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter) -> GroupDecision:
        group = self._consumer_group(request.group_id)
        if group is not None:
            return self.consumer.classic_members.heartbeat(group, request, waiter)
        return self._membership.heartbeat(request, waiter)

    def leave(self, request: LeaveGroupRequest, waiter: Waiter) -> GroupDecision:
        group = self._consumer_group(request.group_id)
        if group is not None:
            return self.consumer.classic_members.leave(group, request, waiter)
        return self._membership.leave(request, waiter)

    # Deleted topics

    def on_topics_deleted(self, topics: Mapping[str, Collection[Uuid]]) -> None:
        """Queue the removal of what groups store of these topics (name and ids); also while the shard is loading."""
        self._expiry.note_deleted(topics)
        if not self._live or self._has(GroupKind.SHARE):
            self.share.forgetting.note_deleted(topic_id for topic_ids in topics.values() for topic_id in topic_ids)

    def forget_topics(self) -> GroupDecision:
        """The first round, at once; others follow by themselves until all records are in the log."""
        decision = self._expiry.forget()
        if self._has(GroupKind.SHARE):
            decision.records.extend(self.share.forgetting.forget().records)
        return decision

    # Life of the shard

    def replay(self, offset: int, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        """Apply one record that stands at `offset` in the log."""
        if isinstance(record, OffsetCommitRecord):
            self._replay_offset(offset, producer_id, record)
        elif isinstance(record, GroupKindRecord):
            # A record of an unknown kind is not replayed and stays in the log.
            name = type(record.key).__name__
            if name.startswith("StreamsGroup"):
                self._streams_replay.replay(record)
            elif name.startswith("ShareGroup"):
                self._share_replay.replay(record)
            else:
                self._consumer_replay.replay(record)
        else:
            self._replay_group(record)

    def replay_end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        self._store.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> GroupDecision:
        """The log has been replayed: sessions begin now; a group above a lowered group.max.size rebalances."""
        self._live = True
        draft = Draft()
        for group in self._classic_groups():
            for member in group.members.values():
                self._rebalance.touch(group, member)
            if len(group.members) > self._context.settings.group_max_size:
                self._rebalance.prepare(group, draft, "the loaded group is over capacity")
        if self._has(GroupKind.CONSUMER):
            self.consumer.on_loaded()
        if self._has(GroupKind.STREAMS):
            self.streams.on_loaded()
        if self._has(GroupKind.SHARE):
            self.share.on_loaded()
        self._expiry.on_loaded()
        return draft.decide()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage, version: int) -> None:
        """Also while the shard is loading: decisions read the newest image."""
        self._context.on_metadata(delta, image, version)
        if self._has(GroupKind.CONSUMER):
            self.consumer.on_metadata(delta)
        if self._has(GroupKind.STREAMS):
            self.streams.on_metadata(delta)
        if self._has(GroupKind.SHARE):
            self.share.on_metadata(delta)

    def on_unloaded(self) -> GroupDecision:
        """A different broker leads now: waiting clients must look for the new coordinator."""
        draft = Draft()
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for group in self._classic_groups():
            for member in group.members.values():
                join_waiter, sync_waiter = group.take_join_waiter(member), member.sync_waiter
                member.sync_waiter = None
                for waiter in (join_waiter, sync_waiter):
                    if waiter is not None:
                        draft.refuse(waiter, error)
        return draft.decide()

    def _classic_groups(self) -> list[ClassicGroup]:
        return [group for group in self._context.groups.values() if isinstance(group, ClassicGroup)]

    def _replay_group(self, record: GroupMetadataRecord) -> None:
        group = self._context.classic(record.group_id)
        value = record.value
        if value is None:
            if group is not None:
                del self._context.groups[record.group_id]
        elif self._live and group is not None and describes(group, value):
            # This group itself decided the record: the group keeps its parked requests.
            if group.members:
                group.become_stable({member.member_id: bytes(member.assignment) for member in value.members})
        else:
            self._context.groups[record.group_id] = group_from_record(record.group_id, value)

    def _replay_offset(self, offset: int, producer_id: ProducerId, record: OffsetCommitRecord) -> None:
        target = TopicPartition(record.topic, record.partition)
        if record.value is None:
            self._store.remove(record.group_id, target)
            return
        if record.group_id not in self._context.groups:
            # A consumer that only stores its offsets here: a simple group, with no record of its own.
            simple = ClassicGroup(record.group_id, GroupState.EMPTY, record.value.commit_timestamp)
            self._context.groups[record.group_id] = simple
        self._store.put(record.group_id, target, CommittedOffset.from_record(offset, record.value), producer_id)
