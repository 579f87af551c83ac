"""The group coordinator of a node: checks a request, finds the group's shard, and runs the event there.

Every request has one method here. The method names the part of `GroupMachine` that decides, and the shard calls that
part. A waiter is called exactly once, with a response or with the KafkaError of the whole request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ottla.coordinator.decisions import GroupDecision, Waiter
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.join import UNKNOWN_MEMBER_ID
from ottla.coordinator.groups.group import GroupKind
from ottla.coordinator.groups.machine import GroupMachine
from ottla.coordinator.groups.shard_context import OperationTimers, ShardContext
from ottla.coordinator.records import decode, encode
from ottla.coordinator.runtime import ShardSpec, TransactionalProducer
from ottla.coordinator.settings import GroupCoordinatorSettings
from ottla.coordinator.shards import Shards
from ottla.env.seams import Clock, RandomSource, Timers
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.model.pace import paced
from ottla.model.topic_names import OFFSETS_TOPIC
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest
from ottla.protocol.generated.join_group_response import JoinGroupResponse
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest
from ottla.protocol.generated.offset_commit_request import OffsetCommitRequest
from ottla.protocol.generated.offset_delete_request import OffsetDeleteRequest
from ottla.protocol.generated.offset_fetch_request import OffsetFetchRequestGroup
from ottla.protocol.generated.sync_group_request import SyncGroupRequest
from ottla.protocol.generated.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.replication.replicas import Replicas

if TYPE_CHECKING:
    from ottla.coordinator.groups.share.coordination import ShareCoordination
    from ottla.coordinator.groups.share.persister import SharePersister
    from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

Operation = Callable[[GroupMachine], GroupDecision]


class GroupCoordinator:
    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        clock: Clock,
        random: RandomSource,
        timers: Timers,
        replicas: Replicas,
        persister: Callable[[], SharePersister] | None = None,
    ) -> None:
        self.settings = settings
        self._persister = persister
        self.rebalances: Counter[GroupKind] = Counter()
        self._image = MetadataImage()
        self._image_version = 0
        spec = ShardSpec(
            make_machine=lambda shard: self._make_machine(clock, random, shard.deadlines),
            encode=encode,
            decode=decode,
            compression=settings.offsets_topic_compression_codec,
            load_buffer_size=settings.offsets_load_buffer_size,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
        )
        self.shards = Shards(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, spec, clock, timers, replicas)

    def _make_machine(self, clock: Clock, random: RandomSource, deadlines: OperationTimers) -> GroupMachine:
        machine = GroupMachine(ShardContext(self.settings, clock, random, deadlines, self.rebalances))
        machine.on_metadata(MetadataDelta(reloaded=True), self._image, self._image_version)
        return machine

    def partition_for(self, group_id: str) -> int:
        return self.shards.partition_for(group_id)

    # Leadership

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage, version: int = 0) -> None:
        """Subscriber of the metadata publisher, after the replicas: their partitions have their leaders by then."""
        self._image, self._image_version = image, version
        for shard in self.shards:
            shard.machine.on_metadata(delta, image, version)
        self.shards.on_metadata(delta, image)
        if delta.topics_deleted:
            self._forget_topics(delta.topics_deleted.values())

    def close(self) -> None:
        """The node stops: waiting requests are answered with NOT_COORDINATOR, so that clients look for the new
        coordinator."""
        self.shards.close()

    def _forget_topics(self, topics: Collection[TopicImage]) -> None:
        """A loading shard forgets the topics once it has loaded; a round whose records are refused runs again."""
        deleted: dict[str, set[Uuid]] = {}
        for topic in topics:
            deleted.setdefault(topic.name, set()).add(topic.id)
        for shard in self.shards:
            shard.machine.on_topics_deleted(deleted)
            shard.submit(shard.machine.forget_topics)

    # The classic protocol

    def join(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter) -> None:
        settings = self.settings
        if not request.group_id:
            waiter(JoinGroupResponse(member_id=request.member_id, error_code=ErrorCode.INVALID_GROUP_ID))
            return
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            waiter(JoinGroupResponse(member_id=request.member_id, error_code=ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        self.shards.run(request.group_id, partial(self._join, caller, request, waiter), waiter)

    def _join(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter, machine: GroupMachine) -> GroupDecision:
        if request.member_id == UNKNOWN_MEMBER_ID and machine.needs_creation(request.group_id):
            # The group first, as an event of its own; then the same request again.
            return machine.create_group(request.group_id, partial(self._join_created, caller, request, waiter))
        return machine.join(caller, request, waiter)

    def _join_created(
        self, caller: Caller, request: JoinGroupRequest, waiter: Waiter, created: KafkaError | None
    ) -> None:
        if created is not None:
            waiter(created)
        else:
            self.shards.run(request.group_id, lambda machine: machine.join(caller, request, waiter), waiter)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> None:
        self._run_named(request.group_id, lambda machine: machine.sync(request, waiter), waiter)

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter) -> None:
        self._run_named(request.group_id, lambda machine: machine.heartbeat(request, waiter), waiter)

    def leave(self, request: LeaveGroupRequest, waiter: Waiter) -> None:
        self._run_named(request.group_id, lambda machine: machine.leave(request, waiter), waiter)

    # The consumer protocol

    def consumer_heartbeat(self, caller: Caller, request: ConsumerGroupHeartbeatRequest, waiter: Waiter) -> None:
        from ottla.coordinator.groups.consumer.validation import validate_heartbeat

        try:
            validate_heartbeat(request, caller.version, self.settings)
        except KafkaError as error:
            waiter(error)
            return
        self.shards.run(request.group_id, lambda machine: machine.consumer.heartbeat(caller, request, waiter), waiter)

    def describe_consumer_group(self, group_id: str, waiter: Waiter) -> None:
        self._run_named(group_id, lambda machine: machine.consumer.describe(group_id, waiter), waiter)

    # Streams groups

    def streams_heartbeat(self, caller: Caller, request: StreamsGroupHeartbeatRequest, waiter: Waiter) -> None:
        """The answer is a `StreamsAnswer`."""
        from ottla.coordinator.groups.streams.validation import validate_heartbeat

        try:
            validate_heartbeat(request)
        except KafkaError as error:
            waiter(error)
            return
        self.shards.run(request.group_id, lambda machine: machine.streams.heartbeat(caller, request, waiter), waiter)

    def describe_streams_group(self, group_id: str, waiter: Waiter) -> None:
        self._run_named(group_id, lambda machine: machine.streams.describe(group_id, waiter), waiter)

    # Share groups

    @cached_property
    def share(self) -> ShareCoordination:
        """Made for the first share group."""
        from ottla.coordinator.groups.share.coordination import ShareCoordination
        from ottla.coordinator.groups.share.persister import NoPersister

        persister = NoPersister() if self._persister is None else self._persister()
        return ShareCoordination(self.shards, persister, lambda: self._image)

    # Offsets. An empty group id is allowed here: old consumers without a group commit under the empty id.

    def commit_offsets(self, version: int, request: OffsetCommitRequest, waiter: Waiter) -> None:
        self.shards.run(
            request.group_id, lambda machine: machine.offset_requests.commit(version, request, waiter), waiter
        )

    def commit_transactional_offsets(
        self,
        version: int,
        request: TxnOffsetCommitRequest,
        topic_ids: dict[str, Uuid],
        producer: TransactionalProducer,
        waiter: Waiter,
    ) -> None:
        self.shards.run(
            request.group_id,
            lambda machine: machine.transactional_offsets.commit(version, request, topic_ids, waiter),
            waiter,
            producer,
        )

    def fetch_offsets(self, request: OffsetFetchRequestGroup, waiter: Waiter, *, require_stable: bool) -> None:
        self.shards.run(
            request.group_id,
            lambda machine: machine.offset_requests.fetch(request, waiter, require_stable=require_stable),
            waiter,
        )

    def delete_offsets(self, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        self._run_named(request.group_id, lambda machine: machine.offset_requests.delete(request, waiter), waiter)

    # Groups

    def describe_group(self, version: int, group_id: str, waiter: Waiter) -> None:
        self.shards.run(group_id, lambda machine: machine.listing.describe(version, group_id, waiter), waiter)

    def delete_group(self, group_id: str, waiter: Waiter) -> None:
        def delete(machine: GroupMachine) -> GroupDecision:
            group = machine.groups.get(group_id)
            if group is not None and group.kind is GroupKind.SHARE:
                return machine.share.offsets.delete_group(
                    group_id, partial(self.share.finish_deletion, group_id, waiter)
                )
            return machine.listing.delete(group_id, waiter)

        self.shards.run(group_id, delete, waiter)

    def list_groups(self, states: list[str], types: list[str], waiter: Waiter) -> None:
        """The groups of all shards of this node, as one list; a shard that cannot answer fails the whole request."""
        state_names = frozenset(state.strip().lower() for state in paced(states))
        type_names = frozenset(name.strip().lower() for name in paced(types))
        self.shards.run_all(
            lambda machine, gather: machine.listing.list_groups(state_names, type_names, gather), waiter
        )

    # Events

    def _run_named(self, group_id: str, operation: Operation, waiter: Waiter) -> None:
        if not group_id:
            waiter(KafkaError(ErrorCode.INVALID_GROUP_ID))
        else:
            self.shards.run(group_id, operation, waiter)
