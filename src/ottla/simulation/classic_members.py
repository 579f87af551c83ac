"""Members of the classic protocol: join, sync, heartbeat, commit, leave; eager, so that a rebalance stops everybody.

The leader assigns: partition after partition to the members in turn. It joins again when a topic grew or was created
again, as clients do.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.coordinator.groups.consumer.embedded import read_assignment
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.protocol.generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.protocol.generated.heartbeat_request import HeartbeatRequest
from ottla.protocol.generated.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.protocol.generated.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.group_reader import GroupWorld, SimulatedMember

if TYPE_CHECKING:
    from ottla.model.ids import Uuid
    from ottla.replication.fetch_session import Key

SESSION_MS = 2_500
REBALANCE_MS = 2_500
_JOIN_MS = 6_000.0
_VERSION = Struct(">h")
_PROTOCOL = "in turn"


class ClassicReader(SimulatedMember):
    def __init__(self, world: GroupWorld, ledger: GroupLedger, topics: list[str], name: str) -> None:
        super().__init__(world, ledger, name)
        self.epoch = -1
        self._topics = topics
        self._leads = False
        self._topology: list[tuple[str, Uuid, int]] = []
        """Of the leader: the topics as they were assigned."""

    async def _turn(self) -> None:
        if self.epoch < 0:
            await self._join()
            return
        await self._beat()
        if self.epoch < 0:
            return
        await self.find_positions()
        await self.poll()
        if self.world.dice.random() < 0.4:
            await self.commit()
        if self._leads and self._topology != self._current_topology():
            await self._give_up()

    async def _mishap(self) -> bool:
        dice = self.world.dice
        kind = dice.choice(["pause", "pause", "leave", "die"])
        if kind == "pause":
            await asyncio.sleep(dice.uniform(0.5, 5))
            if dice.random() < 0.6 and self.epoch >= 0:
                try:
                    await self.poll()
                    await self.commit()
                except NodeUnavailable:
                    pass
            return True
        try:
            if kind == "leave" and self.member_id:
                await self.commit()
                self.drop(set(self.owned))
                members = [MemberIdentity(self.member_id)]
                await self.ask_coordinator(LeaveGroupRequest(self.ledger.group_id, members=members))
        except NodeUnavailable:
            pass
        self.drop(set(self.owned))
        return False

    # ----------------------------------------------------------------------------------------------------- membership

    async def _join(self) -> None:
        request = JoinGroupRequest(
            self.ledger.group_id, SESSION_MS, REBALANCE_MS, self.member_id, None, "consumer",
            [JoinGroupRequestProtocol(_PROTOCOL, _subscription(self._topics))],
        )  # fmt: skip
        response = await self.ask_coordinator(request, timeout_ms=_JOIN_MS)
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code:
            self._on_error(code)
        else:
            self.member_id = response.member_id
            self._leads = response.leader == response.member_id
            await self._sync(response)

    async def _sync(self, joined: Any) -> None:
        assignments = []
        if self._leads and not joined.skip_assignment:
            self._topology = self._current_topology()
            assignments = _assign(sorted(member.member_id for member in joined.members), self._topology)
        request = SyncGroupRequest(
            self.ledger.group_id, joined.generation_id, self.member_id, None, joined.protocol_type,
            joined.protocol_name, assignments,
        )  # fmt: skip
        response = await self.ask_coordinator(request, timeout_ms=_JOIN_MS)
        if response.error_code:
            self._on_error(response.error_code)
            return
        self.epoch = joined.generation_id
        if response.assignment:
            ids = {name: topic_id for name, topic_id, _ in self._current_topology()}
            self.owned = {
                (ids[topic.topic], index)
                for topic in read_assignment(bytes(response.assignment)).assigned_partitions
                for index in topic.partitions
                if topic.topic in ids
            }
        if self.is_authority:
            self.ledger.synced(self.name, self.epoch, sorted(self.owned), self._exchange.received_ms)

    async def _beat(self) -> None:
        epoch = self.epoch
        response = await self.ask_coordinator(HeartbeatRequest(self.ledger.group_id, epoch, self.member_id))
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._give_up()
        elif response.error_code:
            self._on_error(response.error_code)
        elif self.is_authority:
            self.ledger.beat(self.name, epoch, self._exchange.sent_ms)

    def check_commit(self, key: Key, epoch: int) -> None:
        del key
        if self.is_authority:
            self.ledger.beat(self.name, epoch, self._exchange.sent_ms)

    async def _give_up(self) -> None:
        """Before the next generation."""
        await self.commit()
        self.drop(set(self.owned))
        self.epoch = -1

    def _on_error(self, code: int) -> None:
        if self.lost_coordinator(code):
            return
        self.drop(set(self.owned))
        self.epoch = -1
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def _current_topology(self) -> list[tuple[str, Uuid, int]]:
        image = self.world.clients.image
        topics = [image.topics_by_name.get(name) for name in sorted(self._topics)] if image is not None else []
        return [(topic.name, topic.id, len(topic.partitions)) for topic in topics if topic is not None]


def _assign(members: list[str], topology: list[tuple[str, Uuid, int]]) -> list[SyncGroupRequestAssignment]:
    shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
    partitions = [(name, index) for name, _, count in topology for index in range(count)]
    for turn, (name, index) in enumerate(partitions):
        shares[members[turn % len(members)]].setdefault(name, []).append(index)
    return [
        SyncGroupRequestAssignment(member_id, _assignment([TopicPartition(*topic) for topic in topics.items()]))
        for member_id, topics in shares.items()
    ]


def _subscription(topics: list[str]) -> bytes:
    return _VERSION.pack(1) + ConsumerProtocolSubscription(topics=sorted(topics), owned_partitions=[]).to_bytes(1)


def _assignment(partitions: list[TopicPartition]) -> bytes:
    return _VERSION.pack(1) + ConsumerProtocolAssignment(assigned_partitions=partitions).to_bytes(1)
