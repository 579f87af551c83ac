"""Members of a share group (KIP-932): they acquire records, accept, release, reject, let locks end, leave and die."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.metadata.image import RESOURCE_GROUP
from ottla.model.errors import ErrorCode
from ottla.model.ids import new_uuid, uuid_to_str
from ottla.protocol.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.generated.share_acknowledge_request import AcknowledgementBatch as Acknowledged
from ottla.protocol.generated.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.generated.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.simulation.group_ledger import GroupLedger
from ottla.simulation.group_reader import REQUEST_MS, GroupWorld, SimulatedMember
from ottla.simulation.share_ledger import ACCEPT, REJECT, RELEASE, Delivery, ShareLedger

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.replication.fetch_session import Key

SHARE_GROUP = "workers"
_FORGET = 0
_LEAVE = -1
_SETTING = "share.auto.offset.reset"
_ALTER_SET = 0
_MOST_RECORDS = 10
_FETCH_BYTES = 20_000
_WAIT_MS = 100
_CLEAR = frozenset({ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class _Session(NamedTuple):
    """With one broker, on a connection of its own: its end ends the session."""

    connection: NodeClient
    epoch: int
    keys: frozenset[Key]


async def read_from_the_start(world: GroupWorld) -> None:
    """Set the group's start to the earliest record; returns when the brokers have the setting."""
    resource = AlterConfigsResource(RESOURCE_GROUP, SHARE_GROUP, [AlterableConfig(_SETTING, _ALTER_SET, "earliest")])
    while True:
        try:
            broker = world.dice.choice(world.clients.brokers())
            response = await world.clients.ask(broker, IncrementalAlterConfigsRequest([resource]))
            if not response.responses[0].error_code:
                return
        except NodeUnavailable:
            pass
        await asyncio.sleep(0.3)


class ShareReader(SimulatedMember):
    def __init__(self, world: GroupWorld, shares: ShareLedger, name: str, topic: str) -> None:
        super().__init__(world, GroupLedger(SHARE_GROUP), name)
        self.member_id = uuid_to_str(new_uuid(world.dice.randbytes))
        self._shares = shares
        self._topic = topic
        self._full = True
        self._sessions: dict[NodeId, _Session] = {}
        self._got: dict[NodeId, dict[Key, list[int]]] = {}
        """Records that this member has not acknowledged yet."""

    def _missed_answer(self) -> None:
        self._full = True

    async def _turn(self) -> None:
        await self._beat()
        by_leader: dict[NodeId, set[Key]] = {}
        for key in sorted(self.owned):
            leader = self.world.records.leader(key)
            if leader is not None:
                by_leader.setdefault(leader, set()).add(key)
        for broker in sorted(set(self._sessions) - set(by_leader)):
            self._end_session(broker)
        for broker, keys in sorted(by_leader.items()):
            try:
                await self._fetch(broker, keys)
                await self._acknowledge(broker)
            except NodeUnavailable:
                self._end_session(broker)

    async def _mishap(self) -> bool:
        dice = self.world.dice
        kind = dice.choice(["pause", "pause", "leave", "die"])
        if kind == "pause":
            await asyncio.sleep(dice.uniform(0.5, 4))
            return True
        if kind == "leave" and self.epoch > 0:
            try:
                request = ShareGroupHeartbeatRequest(SHARE_GROUP, self.member_id, _LEAVE)
                await self.ask_coordinator(request)
            except NodeUnavailable:
                pass
        for broker in list(self._sessions):
            self._end_session(broker)
        return False

    def _end_session(self, broker: NodeId) -> None:
        session = self._sessions.pop(broker, None)
        self._got.pop(broker, None)
        if session is not None:
            self._shares.unlocked(self.name, session.keys)
            session.connection.close()

    async def _beat(self) -> None:
        names = [self._topic] if self._full or self.epoch == 0 else None
        self._full = True
        response = await self.ask_coordinator(
            ShareGroupHeartbeatRequest(SHARE_GROUP, self.member_id, self.epoch, None, names)
        )
        code = response.error_code
        if not code:
            self._full = False
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = {(t.topic_id, i) for t in response.assignment.topic_partitions for i in t.partitions}
        elif not self.lost_coordinator(code) and code in _FENCED:
            self.epoch = 0
            self.owned = set()

    # ---------------------------------------------------------------------------------------------------------- records

    async def _fetch(self, broker: NodeId, keys: set[Key]) -> None:
        session = self._sessions.get(broker)
        if session is None or session.keys != keys:
            self._end_session(broker)
            session = _Session(self.world.clients.connection(broker), 0, frozenset(keys))
            self._sessions[broker] = session
        topics: dict[Any, FetchTopic] = {}
        for topic_id, index in sorted(keys) if session.epoch == 0 else ():
            topic = topics.setdefault(topic_id, FetchTopic(topic_id, []))
            topic.partitions.append(FetchPartition(index))
        request = ShareFetchRequest(
            SHARE_GROUP, self.member_id, session.epoch, _WAIT_MS, 1, _FETCH_BYTES, _MOST_RECORDS, _MOST_RECORDS,
            topics=list(topics.values()),
        )  # fmt: skip
        epochs = {key: self._epoch(broker, key) for key in keys}
        sent_ms = self.now_ms
        try:
            response = await session.connection.send(request, timeout_ms=REQUEST_MS)
        except NodeUnavailable:
            for key in keys:
                self._shares.lost_fetches[key] = self._shares.lost_fetches.get(key, 0) + 1
            raise
        if response.error_code:
            self._end_session(broker)
            return
        self._sessions[broker] = session._replace(epoch=session.epoch + 1)
        for topic_response in response.responses:
            for row in topic_response.partitions:
                key = (topic_response.topic_id, row.partition_index)
                epoch = epochs.get(key, -1)
                epoch = epoch if epoch == self._epoch(broker, key) else -1
                delivery = Delivery(self.name, broker, epoch, sent_ms, self.now_ms)
                self._take(key, row.acquired_records, delivery)

    def _epoch(self, broker: NodeId, key: Key) -> int:
        """The partition's newest leader epoch, if the broker leads it."""
        truth = self.world.truths.get(key)
        if truth is None or not truth.leaders:
            return -1
        if truth.unclean:
            self._shares.void.add(key)
        newest = max(truth.leaders)
        return newest if truth.leaders[newest] == broker else -1

    def _take(self, key: Key, acquired: list[Any], delivery: Delivery) -> None:
        for span in acquired:
            for offset in range(span.first_offset, span.last_offset + 1):
                self._shares.delivered(key, offset, span.delivery_count, delivery)
                self._got.setdefault(delivery.broker, {}).setdefault(key, []).append(offset)

    async def _acknowledge(self, broker: NodeId) -> None:
        """Each record by itself: most are accepted, some released or rejected, some forgotten until the lock ends."""
        got = self._got.pop(broker, {})
        kinds = {(key, offset): self._kind() for key, offsets in got.items() for offset in offsets}
        kinds = {place: kind for place, kind in kinds.items() if kind}
        if kinds and not self.world.is_calm() and self.world.dice.random() < 0.06:
            await asyncio.sleep(self.world.dice.uniform(0.5, 2))  # too late for some locks
        session = self._sessions.get(broker)
        if session is None or not kinds:
            return
        counts = {place: self._shares.shared(*place).deliveries for place in kinds}
        for place in kinds:
            self._shares.shared(*place).lock = None
        request = ShareAcknowledgeRequest(SHARE_GROUP, self.member_id, session.epoch, topics=_topics(kinds))
        unclear = set(kinds)
        try:
            response = await session.connection.send(request, timeout_ms=REQUEST_MS)
            rows = [(t.topic_id, row) for t in response.responses for row in t.partitions]
            codes = {(topic_id, row.partition_index): row.error_code for topic_id, row in rows}
            for key, offset in sorted(kinds):
                code = response.error_code or codes.get(key)
                if code == ErrorCode.NONE:
                    self._shares.acknowledged(key, offset, kinds[key, offset], counts[key, offset], self.now_ms)
                if code in _CLEAR:
                    unclear.discard((key, offset))
        finally:
            for place in unclear:
                self._shares.shared(*place).is_settled |= kinds[place] != RELEASE
        if response.error_code:
            self._end_session(broker)
        else:
            self._sessions[broker] = session._replace(epoch=session.epoch + 1)

    def _kind(self) -> int:
        dice = self.world.dice
        return ACCEPT if self.world.is_calm() else dice.choices([ACCEPT, RELEASE, REJECT, _FORGET], [8, 2, 1, 1])[0]


def _topics(kinds: dict[tuple[Key, int], int]) -> list[AcknowledgeTopic]:
    topics: dict[Any, AcknowledgeTopic] = {}
    partitions: dict[Key, AcknowledgePartition] = {}
    for key, offset in sorted(kinds):
        if key not in partitions:
            partitions[key] = AcknowledgePartition(key[1], [])
            topics.setdefault(key[0], AcknowledgeTopic(key[0], [])).partitions.append(partitions[key])
        partitions[key].acknowledgement_batches.append(Acknowledged(offset, offset, [kinds[key, offset]]))
    return list(topics.values())
