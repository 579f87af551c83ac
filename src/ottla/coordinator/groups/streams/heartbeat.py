"""StreamsGroupHeartbeat: join with a topology, stay, follow the assignment and leave, all in one request (KIP-1071).

Epoch 0 joins, -1 leaves. A member whose epoch differs from the coordinator's must give up all its tasks and join again,
unless the member only missed the last answer. Everything here decides, and the drafted records make the change. State
that is not durable is set at the end, so that it stays correct when the log refuses the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ottla.coordinator.decisions import Draft, GroupDecision, Waiter
from ottla.coordinator.groups.assigned_group import JOIN_GROUP_EPOCH, LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from ottla.coordinator.groups.caller import Caller
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.coordinator.groups.streams.configuration import ConfiguredTopology, InternalTopic
from ottla.coordinator.groups.streams.endpoints import partitions_by_endpoint
from ottla.coordinator.groups.streams.fencing import StreamsFencing
from ottla.coordinator.groups.streams.group import StreamsGroup
from ottla.coordinator.groups.streams.group_records import current_record, member_record
from ottla.coordinator.groups.streams.members import StreamsMember, UserEndpoint
from ottla.coordinator.groups.streams.reconciliation import StreamsReconciliation, StreamsTarget
from ottla.coordinator.groups.streams.statuses import StatusCode
from ottla.coordinator.groups.streams.target import StreamsTargetAssignment
from ottla.coordinator.groups.streams.tasks import TargetTasks, tasks_from
from ottla.coordinator.groups.streams.timings import StreamsTimings, streams_timings
from ottla.coordinator.groups.streams.topology_changes import TopologyChange, TopologyChanges, validate_tasks
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.java_order import strings_in_java_order
from ottla.protocol.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from ottla.protocol.generated.streams_group_heartbeat_response import Status, StreamsGroupHeartbeatResponse, TaskIds

log = get_logger(__name__)


class StreamsAnswer(NamedTuple):
    response: StreamsGroupHeartbeatResponse
    missing_topics: tuple[InternalTopic, ...] = ()
    """Internal topics that the broker is to create."""


class StreamsHeartbeat:
    def __init__(self, context: ShardContext, fencing: StreamsFencing) -> None:
        self._context = context
        self._fencing = fencing
        self._topologies = TopologyChanges(context)
        self._target = StreamsTargetAssignment(context)

    def heartbeat(self, caller: Caller, request: StreamsGroupHeartbeatRequest, waiter: Waiter) -> GroupDecision:
        draft = Draft()
        if request.member_epoch in (LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH):
            answer = self._leave(request, draft)
        else:
            answer = self._beat(caller, request, draft)
        if request.shutdown_application:
            # Only a heartbeat that succeeds asks for the shutdown, not a refused heartbeat.
            draft.answer(partial(self._on_shutdown_requested, request.group_id, request.member_id), None)
        draft.answer(waiter, answer)
        return draft.decide()

    def _leave(self, request: StreamsGroupHeartbeatRequest, draft: Draft) -> StreamsAnswer:
        group = self._context.group(request.group_id)
        if not isinstance(group, StreamsGroup):
            raise _not_streams(request.group_id)
        member = group.member(request.member_id)
        log.info("member.left", group=group.group_id, member=member.member_id)
        self._fencing.fence(group, member, draft)
        response = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return StreamsAnswer(response)

    def _beat(self, caller: Caller, request: StreamsGroupHeartbeatRequest, draft: Draft) -> StreamsAnswer:
        group = self._find_or_make(request, draft)
        owned = _owned(request)
        member = _member(group, request, owned)
        updated = _updated(member, caller, request)
        if updated != member:
            draft.records.append(member_record(group.group_id, updated))
        timings = streams_timings(group.group_id, self._context.image, self._context.settings)
        change = self._topologies.update(group, request, timings, draft, member_changed=updated != member)
        if change.configured.is_ready:
            validate_tasks(change.configured.subtopologies, owned)
        statuses = _stale_topology(group, updated)
        if group.is_empty:
            self._target.delay_first(group.group_id, timings)
        target = self._target.update(group, change.group_epoch, updated, change.configured, timings, statuses, draft)
        updated = self._reconcile(group, updated, target, owned, draft)
        # From here on nothing can fail.
        change.apply()
        self._fencing.touch(group.group_id, updated.member_id)
        response = self._response(group, request, member, updated, change, timings)
        asks = request.member_id if request.shutdown_application else None
        response.status = [*statuses, *_statuses(change.configured, group.shutdown_requested_by or asks)]
        return StreamsAnswer(response, change.configured.missing)

    def _on_shutdown_requested(self, group_id: str, member_id: str, outcome: KafkaError | None) -> None:
        """The first to ask is remembered, until the group is empty."""
        group = self._context.groups.get(group_id)
        if outcome is not None or not isinstance(group, StreamsGroup) or group.is_empty:
            return
        if group.shutdown_requested_by is None:
            group.shutdown_requested_by = member_id
            log.info("shutdown.requested", group=group_id, member=member_id)

    def _find_or_make(self, request: StreamsGroupHeartbeatRequest, draft: Draft) -> StreamsGroup:
        group_id, joins = request.group_id, request.member_epoch == JOIN_GROUP_EPOCH
        group = self._context.groups.get(group_id)
        if group is None and not joins:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        if group is None:
            group = StreamsGroup(group_id)
        elif joins and isinstance(group, ClassicGroup) and group.is_empty:
            draft.records += group.tombstones()
            group = StreamsGroup(group_id)
        if not isinstance(group, StreamsGroup):
            raise _not_streams(group_id)
        limit = self._context.settings.group_streams_max_size
        if joins and len(group.members) >= limit:
            message = f"The streams group has reached its maximum capacity of {limit} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        return group

    def _reconcile(
        self, group: StreamsGroup, member: StreamsMember, target: StreamsTarget, owned: TargetTasks | None, draft: Draft
    ) -> StreamsMember:
        if member.is_reconciled_to(target.epoch):
            return member
        updated = StreamsReconciliation(member, target, owned, group.owners).step()
        if updated == member:
            return member
        draft.records.append(current_record(group.group_id, updated))
        self._fencing.await_revocation(group.group_id, updated)
        return updated

    def _response(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        member: StreamsMember,
        updated: StreamsMember,
        change: TopologyChange,
        timings: StreamsTimings,
    ) -> StreamsGroupHeartbeatResponse:
        response = StreamsGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=timings.heartbeat_interval_ms,
        )
        if request.member_epoch == JOIN_GROUP_EPOCH or member.assigned != updated.assigned:
            response.active_tasks = _task_ids(updated.assigned.active)
            response.standby_tasks = _task_ids(updated.assigned.standby)
            response.warmup_tasks = _task_ids(updated.assigned.warmup)
            if updated.user_endpoint is not None:
                group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = partitions_by_endpoint(
                group, updated, change.configured, self._context.image
            )
        if group.group_id in self._context.groups:
            response.endpoint_information_epoch = group.endpoint_epoch
        return response


def _member(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: TargetTasks | None) -> StreamsMember:
    epoch = request.member_epoch
    if epoch == JOIN_GROUP_EPOCH:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    member = group.member(request.member_id)
    if epoch == member.member_epoch:
        return member
    is_previous = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if is_previous and owned is not None and owned.are_all_in(member.assigned):
        return member  # the member missed the last answer
    compared = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {compared} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> TargetTasks | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TargetTasks(tasks_from(active), tasks_from(standby), tasks_from(warmup))


def _updated(member: StreamsMember, caller: Caller, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
    """The member with the changed fields of the request; most heartbeats change nothing."""
    changes: dict[str, object] = {"client_id": caller.client_id, "client_host": caller.client_host}
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changes["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        changes["process_id"] = request.process_id
    if request.client_tags is not None:
        changes["client_tags"] = {tag.key: tag.value for tag in request.client_tags}
    if request.user_endpoint is not None:
        changes["user_endpoint"] = UserEndpoint(request.user_endpoint.host, request.user_endpoint.port)
    return replace(member, **changes)  # type: ignore[arg-type]  # each value has its field's type


def _stale_topology(group: StreamsGroup, member: StreamsMember) -> list[Status]:
    if group.topology is None or member.topology_epoch >= group.topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
        f"{group.topology.epoch}."
    )
    return [Status(StatusCode.STALE_TOPOLOGY, detail)]


def _statuses(configured: ConfiguredTopology, shutdown_requested_by: str | None) -> list[Status]:
    statuses = []
    if configured.problem is not None:
        statuses.append(Status(configured.problem.code, configured.problem.detail))
    if shutdown_requested_by is not None:
        detail = (
            f"Streams group member {shutdown_requested_by} encountered a fatal error and requested a shutdown "
            "for the entire application."
        )
        statuses.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    return statuses


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology, sorted(tasks[subtopology])) for subtopology in strings_in_java_order(tasks)]


def _not_streams(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
