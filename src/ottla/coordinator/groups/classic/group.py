"""A classic group: its members, its generation and its state. No records, no timers, no responses are made here.

Durable is what a GroupMetadata record holds: generation, protocol, leader, the members with their subscription and
assignment, the time of the state. Soft is the rest: who waits, who is pending, a generation that is being formed. Soft
state is gone after a restart, and the members find that out by their next request.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.decisions import Waiter
from ottla.coordinator.groups.classic.members import Member, Protocols
from ottla.coordinator.groups.classic.protocol_selection import ProtocolCounts, select_protocol
from ottla.coordinator.groups.classic.states import PREVIOUS_STATES, GroupState, IllegalTransition
from ottla.coordinator.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.coordinator.groups.group import Group, GroupKind, PartitionCheck
from ottla.coordinator.groups.offset_store import CommittedOffset
from ottla.coordinator.records import CoordinatorRecord, GroupMetadataRecord
from ottla.model.errors import ErrorCode, KafkaError


class ClassicGroup(Group):
    """One group of the classic protocol. `members` changes only through the methods, which keep the counts right."""

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, state: GroupState, state_timestamp_ms: int | None) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_members: set[str] = set()
        self.pending_sync_members: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        """A member came during the initial delay, which may be lengthened once more."""
        self._protocols = ProtocolCounts()
        self._awaiting_join = 0

    # State

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        if self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransition(f"group {self.group_id}: {self.state.value} -> {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def start_generation(self, now_ms: int) -> None:
        """The join phase is over: choose the protocol and wait for the leader's assignment, or be empty."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync_members.clear()

    def become_stable(self, assignments: dict[str, bytes]) -> None:
        """What replaying the record of a generation does to the group that decided it."""
        for member in self.members.values():
            member.assignment = assignments[member.member_id]
        if self.state is not GroupState.STABLE:
            timestamp_ms = self.state_timestamp_ms
            self.transition_to(GroupState.STABLE, -1)
            self.state_timestamp_ms = timestamp_ms

    # Members

    def add(self, member: Member, join_waiter: Waiter | None = None) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        duplicate = self.members.get(member.member_id)
        if duplicate is not None:  # only a record that names the member twice
            self._protocols.remove(duplicate.protocols)
        self.members[member.member_id] = member
        self._protocols.add(member.protocols)
        self.pending_join_members.discard(member.member_id)
        if join_waiter is not None:
            self.park_join(member, join_waiter)

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending member; the next member leads when the leader goes."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._protocols.remove(member.protocols)
            self._awaiting_join -= member.is_awaiting_join
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def rename_static(self, group_instance_id: str, new_member_id: str) -> Member:
        """A static member came back under a new id: same place, same assignment. Its parked requests must be gone."""
        old_member_id = self.static_members[group_instance_id]
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._protocols.remove(member.protocols)
        member.protocols = protocols
        self._protocols.add(protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member; raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when a different member has the instance id."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def elect_joined_leader(self) -> bool:
        """Keep the leader if the leader has rejoined, else elect the first member that has; False when no member has
        rejoined."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def not_yet_rejoined(self) -> list[Member]:
        return [member for member in self.members.values() if not member.is_awaiting_join]

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self._awaiting_join and not self.pending_join_members

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def park_join(self, member: Member, waiter: Waiter) -> Waiter | None:
        """Keep the waiter until the join phase ends; returns the member's earlier waiter, if there was one."""
        earlier = self.take_join_waiter(member)
        member.join_waiter = waiter
        self._awaiting_join += 1
        return earlier

    def take_join_waiter(self, member: Member) -> Waiter | None:
        waiter = member.join_waiter
        if waiter is not None:
            member.join_waiter = None
            self._awaiting_join -= 1
        return waiter

    # Protocols and topics

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self._protocols.has_common(name for name, _ in protocols)

    def select_protocol(self) -> str:
        return select_protocol(self.members.values(), self._protocols.common())

    def is_subscribed_to(self, topic: str) -> bool:
        """When the subscriptions cannot be read a consumer group counts as subscribed to everything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def refresh_subscribed_topics(self) -> None:
        self.subscribed_topics = self._compute_subscribed_topics()

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if self.members and self.protocol_name is None:
            return None
        return subscribed_topics(self._metadatas())

    def _metadatas(self) -> Iterator[bytes]:
        return (member.metadata(self.protocol_name) for member in self.members.values())

    # Offsets and the end of the group

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        epoch: int,
        *,
        version: int,  # noqa: ARG002 - only members with epochs need a version that has them
        transactional: bool = False,
    ) -> PartitionCheck | None:
        """Only members of the current generation may commit to a group that has members."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if epoch < 0 and self.state is GroupState.EMPTY:
            return None
        if epoch >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if epoch != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Every client may read the offsets of a classic group."""

    def validate_offset_delete(self) -> None:
        if self.state not in (GroupState.EMPTY, GroupState.DEAD) and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [GroupMetadataRecord(self.group_id, None)]

    def unused_since(self, offset: CommittedOffset) -> int | None:
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return offset.commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is GroupState.STABLE:
            return offset.commit_timestamp_ms
        return None
