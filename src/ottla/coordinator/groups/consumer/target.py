"""The target assignment of every member, computed when the group's epoch moved.

At most once in group.consumer.assignment.interval.ms (KIP-1263): many members that join at once cause one computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.decisions import Draft
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups.consumer.assignors.spec import ConsumerMemberSpec, GroupSpec
from ottla.coordinator.groups.consumer.group import NO_TARGET, ConsumerGroup
from ottla.coordinator.groups.consumer.group_records import target_epoch_record, target_record
from ottla.coordinator.groups.consumer.members import ConsumerMember, TargetPartitions
from ottla.coordinator.groups.consumer.subscriptions import Subscriptions
from ottla.coordinator.groups.shard_context import ShardContext
from ottla.env.logging import get_logger
from ottla.metadata.image import MetadataImage
from ottla.model.ids import Uuid
from ottla.model.java_order import strings_in_java_order

log = get_logger(__name__)


class ConsumerTarget(NamedTuple):
    epoch: int
    partitions: TargetPartitions


class ConsumerTargetAssignment:
    def __init__(self, context: ShardContext) -> None:
        self._context = context

    def update(
        self,
        group: ConsumerGroup,
        group_epoch: int,
        old: ConsumerMember,
        updated: ConsumerMember,
        subscriptions: Subscriptions,
        draft: Draft,
    ) -> ConsumerTarget:
        """The target of `updated`: computed when the group's epoch moved and the interval has passed, else the last
        target."""
        if group.assignment_epoch >= group_epoch or not self._is_due(group):
            return ConsumerTarget(group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id))
        members = _members_with(group, updated)
        name = group.preferred_assignor(old, updated)
        if name not in ASSIGNORS:  # no preference, or a record with an assignor that this node lacks
            name = self._context.settings.group_consumer_assignors[0]
        spec = _spec(group, members, subscriptions, self._context.image)
        assignment = ASSIGNORS[name](spec)
        for member_id in members:
            new = assignment.get(member_id, NO_TARGET)
            if group.targets.get(member_id) != new:
                draft.records.append(target_record(group.group_id, member_id, new))
        draft.records.append(target_epoch_record(group.group_id, group_epoch, self._context.clock.time_ms()))
        log.info("group.assigned", group=group.group_id, epoch=group_epoch, assignor=name, members=len(members))
        return ConsumerTarget(group_epoch, assignment.get(updated.member_id, NO_TARGET))

    def _is_due(self, group: ConsumerGroup) -> bool:
        interval_ms = self._context.consumer_timings(group.group_id).consumer_assignment_interval_ms
        if group.assignment_timestamp_ms == 0 or interval_ms == 0:
            return True
        return self._context.has_passed(group.assignment_timestamp_ms, interval_ms)


def _members_with(group: ConsumerGroup, updated: ConsumerMember) -> dict[str, ConsumerMember]:
    """The members as they will be; a static member that returned under a new id is there only once."""
    members = {**group.members, updated.member_id: updated}
    previous = group.static_members.get(updated.instance_id) if updated.instance_id is not None else None
    if previous is not None and previous != updated.member_id:
        del members[previous]
    return {member_id: members[member_id] for member_id in strings_in_java_order(members)}


def _spec(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    subscriptions: Subscriptions,
    image: MetadataImage,
) -> GroupSpec:
    counts: dict[Uuid, int] = {}
    ids_by_names: dict[frozenset[str], frozenset[Uuid]] = {}

    def topic_ids(names: frozenset[str]) -> frozenset[Uuid]:
        ids = ids_by_names.get(names)
        if ids is None:
            topics = [topic for name in names if (topic := image.topics_by_name.get(name)) is not None]
            counts.update((topic.id, len(topic.partitions)) for topic in topics)
            ids = ids_by_names[names] = frozenset(topic.id for topic in topics)
        return ids

    specs = {
        member_id: ConsumerMemberSpec(
            member.instance_id,
            topic_ids(subscriptions.topics_of(member)),
            group.target_of(member_id, member.instance_id),
        )
        for member_id, member in members.items()
    }
    return GroupSpec(specs, counts, subscriptions.are_homogeneous(len(members)))
