"""Members of a consumer group (KIP-848): they join, read, commit, give up partitions, pause, leave, die and come back.

A member owns a partition from the answer that names the partition until it sends a heartbeat without the partition, or
until the coordinator refuses its epoch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid, new_uuid, uuid_to_str
from ottla.protocol.generated.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.runtime.node_client import NodeUnavailable
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.group_reader import GroupWorld, SimulatedMember

if TYPE_CHECKING:
    from ottla.replication.fetch_session import Key

SESSION_MS = 2_500
REBALANCE_MS = 3_000
_LEAVE, _LEAVE_FOR_A_WHILE = -1, -2
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class EpochReader(SimulatedMember):
    """One process of a consumer. `instance_id` makes it a static member."""

    def __init__(
        self, world: GroupWorld, ledger: GroupLedger, topics: list[str], name: str, instance_id: str | None
    ) -> None:
        super().__init__(world, ledger, name)
        self.member_id = uuid_to_str(new_uuid(world.dice.randbytes))
        self.instance_id = instance_id
        self._topics = topics
        self._full = True
        """The next heartbeat has the whole state: the member joins, or has missed an answer."""
        self._revoking: set[Key] = set()
        self._revoked_ms = 0.0
        self._lives = 0
        self._base = name
        self._last_beat_ms = 0.0

    def _missed_answer(self) -> None:
        self._full = True

    async def _turn(self) -> None:
        await self._beat()
        if self.epoch <= 0:
            return
        await self.find_positions()
        await self.poll()
        if self._revoking and self.now_ms >= self._revoked_ms:
            await self.commit()
            self.drop(self._revoking)
            self._revoking = set()
        elif self.world.dice.random() < 0.4:
            await self.commit()

    # ------------------------------------------------------------------------------------------------------- mishaps

    async def _mishap(self) -> bool:
        dice = self.world.dice
        kind = dice.choice(["pause", "pause", "leave", "die"])
        if kind == "pause":
            await asyncio.sleep(dice.uniform(0.5, 5))
            if dice.random() < 0.6 and self.epoch > 0:
                await self._act_as_before()
            return True
        if kind == "leave" and self.epoch > 0:
            await self._leave()
        self.drop(set(self.owned))
        return False

    async def _act_as_before(self) -> None:
        """A member that was away does not know yet that the group went on without it."""
        try:
            await self.poll()
            await self.commit()
        except NodeUnavailable:
            self._full = True

    async def _leave(self) -> None:
        epoch = _LEAVE if self.instance_id is None else _LEAVE_FOR_A_WHILE
        keys = set(self.owned)
        try:
            await self.commit()
            self.drop(set(self.owned))
            request = ConsumerGroupHeartbeatRequest(self.ledger.group_id, self.member_id, epoch, self.instance_id)
            response = await self.ask_coordinator(request)
        except NodeUnavailable:
            return
        if not response.error_code and self.instance_id is not None and self.is_authority:
            self.ledger.went_away(self.instance_id, keys - self._revoking, self._last_beat_ms + SESSION_MS)

    def check_commit(self, key: Key, epoch: int) -> None:
        del epoch
        if self.is_authority:
            self.ledger.may_commit(self.name, key, self._exchange)

    # ----------------------------------------------------------------------------------------------------- heartbeats

    async def _beat(self) -> None:
        reported, life, full = set(self.owned), self.name, self._full
        if self.epoch == 0:
            self._lives += 1
            self.name = life = f"{self._base}/{self._lives}"
        request = ConsumerGroupHeartbeatRequest(
            self.ledger.group_id, self.member_id, self.epoch, self.instance_id, topic_partitions=_partitions(reported)
        )
        if full or self.epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = sorted(self._topics)
        self._full = True
        response = await self.ask_coordinator(request)
        code = response.error_code
        if code:
            self._on_error(code)
            return
        self._full = False
        self._last_beat_ms = self._exchange.sent_ms
        self.epoch = response.member_epoch
        if self.is_authority:
            for key in sorted(reported):
                self.ledger.confirmed(life, key, self._exchange)
        if response.assignment is not None:
            self._follow({(t.topic_id, i) for t in response.assignment.topic_partitions for i in t.partitions})

    def _on_error(self, code: int) -> None:
        if self.lost_coordinator(code):
            return
        if code in _FENCED:
            self.drop(set(self.owned))
            self._revoking = set()
            self.epoch = 0
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.drop(set(self.owned))
            self.member_id = uuid_to_str(new_uuid(self.world.dice.randbytes))
            self.epoch = 0

    def _follow(self, assignment: set[Key]) -> None:
        """Take what is new at once, give up the rest after a while; until then this member still owns it."""
        lost = self.owned - assignment
        if lost and not self._revoking:
            slow = self.world.dice.random() < 0.5
            self._revoked_ms = self.now_ms + (self.world.dice.uniform(300, 1_200) if slow else 0.0)
        self._revoking = lost
        for key in sorted(assignment - self.owned):
            self.owned.add(key)
            if self.is_authority:
                self.ledger.granted(self.name, self.instance_id, key, self._exchange)
            else:
                self.ledger.held.setdefault(key, {})[self.name] = self._exchange.received_ms


def _partitions(keys: set[Key]) -> list[TopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(keys):
        topics.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id, indexes) for topic_id, indexes in topics.items()]
