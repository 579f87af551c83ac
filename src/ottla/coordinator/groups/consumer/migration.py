"""From a classic group to a consumer group and back, while it runs (group.consumer.migration.policy).

Up: the first member with the consumer protocol turns the group of classic members into a consumer group. Each classic
member stays, with its assignment, as a classic member. Down: when the last member with the consumer protocol leaves,
the remaining group becomes a classic group again and rebalances. Both changes are records: tombstones of the old group,
then the records of the new group.
"""

from __future__ import annotations

from functools import partial

from ottla.coordinator.decisions import Draft, GroupDecision
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.classic.group_records import group_record
from ottla.coordinator.groups.classic.members import Member
from ottla.coordinator.groups.classic.rebalance import Rebalance
from ottla.coordinator.groups.classic.states import GroupState
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.groups.consumer import embedded, group_records
from ottla.coordinator.groups.consumer.group import NO_TARGET, ConsumerGroup
from ottla.coordinator.groups.consumer.members import (
    ClassicMember,
    ConsumerMember,
    ConsumerMemberState,
    TargetPartitions,
)
from ottla.coordinator.groups.shard_context import ShardContext, join_key, sync_key
from ottla.coordinator.records import CoordinatorRecord
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.generated.join_group_response import JoinGroupResponse
from ottla.protocol.generated.sync_group_response import SyncGroupResponse
from ottla.protocol.primitives import DecodeError

log = get_logger(__name__)


class Migration:
    def __init__(self, context: ShardContext, classic_rebalance: Rebalance) -> None:
        self._context = context
        self._classic = classic_rebalance

    # Up

    def upgraded(self, group: ClassicGroup) -> ConsumerGroup:
        """The consumer group that this classic group becomes; raises KafkaError when the upgrade is not allowed.

        Changes nothing yet.
        """
        self._validate_upgrade(group)
        upgraded_group = ConsumerGroup(group.group_id)
        upgraded_group.group_epoch = upgraded_group.assignment_epoch = group.generation_id
        try:
            for member in group.members.values():
                upgraded = self._upgraded_member(group, member)
                upgraded_group.targets[member.member_id] = _without_epochs(upgraded)
                upgraded_group.put(upgraded)
        except DecodeError as error:
            raise _not_found(group, "the embedded consumer protocol is malformed") from error
        upgraded_group.metadata_hash = self._context.topic_hashes.group_hash(
            upgraded_group.subscriptions.topics(), self._context.image
        )
        return upgraded_group

    def upgrade_records(self, classic: ClassicGroup, group: ConsumerGroup) -> list[CoordinatorRecord]:
        group_id, members = group.group_id, group.members.values()
        records = classic.tombstones()
        records += [group_records.member_record(group_id, member) for member in members]
        records.append(group_records.epoch_record(group_id, group.group_epoch, group.metadata_hash))
        records += [
            group_records.target_record(group_id, member_id, target) for member_id, target in group.targets.items()
        ]
        records.append(group_records.target_epoch_record(group_id, group.assignment_epoch, 0))
        records += [group_records.current_record(group_id, member) for member in members]
        return records

    def release(self, classic: ClassicGroup, draft: Draft) -> None:
        """Refuse the parked requests of the classic group, so that their members ask again, and cancel the group's
        timers."""
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in classic.members.values():
            # The member's session may have ended while its request was parked, and the log may still refuse the
            # upgrade.
            self._classic.touch(classic, member)
            join_waiter = classic.take_join_waiter(member)
            if join_waiter is not None:
                draft.answer(join_waiter, JoinGroupResponse(member_id=member.member_id, error_code=code))
            if member.sync_waiter is not None:
                draft.answer(member.sync_waiter, SyncGroupResponse(error_code=code))
                member.sync_waiter = None
        for key in (join_key(classic.group_id), sync_key(classic.group_id)):
            self._context.timers.cancel(key)

    def _validate_upgrade(self, group: ClassicGroup) -> None:
        settings = self._context.settings
        if not settings.allows_upgrade:
            raise _not_found(group, "online upgrade is disabled")
        if not group.uses_consumer_protocol:
            raise _not_found(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > settings.group_consumer_max_size:
            raise _not_found(group, "the group size exceeds the consumer group maximum size")

    def _upgraded_member(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        epoch = group.generation_id
        assigned: TargetPartitions = {}
        if member.assignment:
            assignment = embedded.read_assignment(member.assignment)
            if assignment.user_data:
                raise _not_found(
                    group,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade",
                )
            assigned = embedded.assigned_partitions(assignment, self._context.image)
        # A new generation may have members that do not support the protocol of the last generation.
        is_shared = all(group.protocol_name in other.protocol_names() for other in group.members.values())
        protocol_name = group.protocol_name if is_shared else group.select_protocol()
        subscription = embedded.read_subscription(member.metadata(protocol_name))
        return ConsumerMember(
            member.member_id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            state=ConsumerMemberState.STABLE,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            assigned={topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in assigned.items()},
            classic=ClassicMember(member.session_timeout_ms, member.protocols),
        )

    # Down

    def must_downgrade_without(self, group: ConsumerGroup, leaving: list[ConsumerMember]) -> bool:
        """Are all that stay classic members, some at least, and few enough for a classic group?"""
        staying = len(group.members) - len(leaving)
        classic = group.classic_member_count - sum(member.uses_classic_protocol for member in leaving)
        if not (staying > 0 and staying == classic and self._may_downgrade(staying)):
            return False
        gone = {member.member_id for member in leaving}
        supported = [
            {name for name, _ in member.classic.protocols}
            for member in group.members.values()
            if member.classic is not None and member.member_id not in gone
        ]
        # Joining members are checked, but a damaged log may still hold members without a common protocol.
        return bool(set.intersection(*supported))

    def must_downgrade_replacing(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """Whether the static member that a classic member replaces is the last member of the consumer protocol."""
        others_are_classic = group.classic_member_count == len(group.members) - 1
        return not replaced.uses_classic_protocol and others_are_classic and self._may_downgrade(len(group.members))

    def _may_downgrade(self, members: int) -> bool:
        return self._context.settings.allows_downgrade and members <= self._context.settings.group_max_size

    def downgrade(
        self,
        group: ConsumerGroup,
        draft: Draft,
        *,
        leaving: list[ConsumerMember] | None = None,
        joining: ConsumerMember | None = None,
        rebalance: bool = True,
    ) -> None:
        """Records that turn the group into a classic group; a rebalance, when due, is the next event."""
        gone = {member.member_id for member in leaving or ()}
        replaced = group.static_member(joining.instance_id) if joining is not None else None
        classic = ClassicGroup(group.group_id, GroupState.STABLE, self._context.clock.time_ms())
        classic.generation_id = group.group_epoch
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        targets: dict[str, TargetPartitions] = {}
        for member in group.members.values():
            if member.member_id not in gone and member is not replaced:
                classic.add(_classic_member(member))
                targets[member.member_id] = group.targets.get(member.member_id, NO_TARGET)
        if joining is not None and replaced is not None:
            classic.add(_classic_member(joining))
            targets[joining.member_id] = group.targets.get(replaced.member_id, NO_TARGET)
        classic.protocol_name = classic.select_protocol()
        assignments = {
            member.member_id: embedded.write_assignment(
                targets[member.member_id],
                embedded.version_or_first(member.metadata(classic.protocol_name)),
                self._context.image,
            )
            for member in classic.members.values()
        }
        draft.records += self._tombstones(group, replaced, joining)
        draft.records.append(group_record(classic, assignments))
        log.info("group.downgraded", group=group.group_id, members=len(classic.members))
        operation = partial(self._after_downgrade, group.group_id, rebalance=rebalance)
        self._context.timers.schedule(("downgraded", group.group_id), 0, operation)

    def _tombstones(
        self, group: ConsumerGroup, replaced: ConsumerMember | None, joining: ConsumerMember | None
    ) -> list[CoordinatorRecord]:
        names = [
            joining.member_id if member is replaced and joining else member.member_id
            for member in group.members.values()
        ]
        return group_records.group_tombstones(group.group_id, names, list(group.subscriptions.resolved))

    def _after_downgrade(self, group_id: str, *, rebalance: bool) -> GroupDecision:
        draft = Draft()
        group = self._context.classic(group_id)
        if group is not None:
            for member in group.members.values():
                self._classic.touch(group, member)
            if rebalance and group.is_in(GroupState.STABLE):
                self._classic.prepare(group, draft, "the group was downgraded from the consumer protocol")
        return draft.decide()


def _classic_member(member: ConsumerMember) -> Member:
    if member.classic is None:
        raise RuntimeError(f"member {member.member_id} does not use the classic protocol")
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        member.classic.protocols,
    )


def _without_epochs(member: ConsumerMember) -> TargetPartitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}


def _not_found(group: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
