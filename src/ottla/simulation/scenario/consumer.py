"""The consumers of a scenario: readers of partitions, alone or as members of a group (`group.py`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode
from ottla.protocol.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.records import HEADER_BYTES, iterate_records, parse_header
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.simulation.scenario.batches import record_id_of
from ottla.simulation.scenario.keys import ISOLATIONS
from ottla.simulation.scenario.view import connection

if TYPE_CHECKING:
    from ottla.model.ids import NodeId
    from ottla.simulation.clients import Clients
    from ottla.simulation.scenario.facts import ConsumerFacts, TopicPartition
    from ottla.simulation.scenario.plan import ConsumerPlan, TopicPlan
    from ottla.simulation.scenario.view import ClientView

_WAIT_MS = 500
_FETCH_BYTES = 1 << 20
_TIMEOUT_MS = 30_000.0
_EARLIEST, _LATEST = -2, -1


class PartitionReader:
    """Reads one partition from its leader, from a position on, until it is stopped."""

    def __init__(
        self, consumer_plan: ConsumerPlan, where: TopicPartition, position: int, view: ClientView, facts: ConsumerFacts
    ) -> None:
        self.where = where
        self.position = position
        """-1: begin where `reset` demands."""
        self.stopped = False
        self._plan = consumer_plan
        self._view = view
        self._facts = facts
        self._epoch = -1
        self._connections: dict[NodeId, NodeClient] = {}

    async def run(self) -> None:
        while not self.stopped:
            leader = self._view.leader(self.where)
            try:
                if leader is None:
                    await self._view.refresh()
                elif self.position < 0:
                    await self._begin(leader)
                else:
                    await self._fetch(leader)
            except NodeUnavailable:
                await self._view.refresh()
        for client in self._connections.values():
            client.close()

    def _connection(self, leader: NodeId) -> NodeClient:
        if leader not in self._connections:
            self._connections[leader] = connection(leader, _TIMEOUT_MS)
        return self._connections[leader]

    async def _begin(self, leader: NodeId) -> None:
        timestamp = _EARLIEST if self._plan.reset == "earliest" else _LATEST
        partition = ListOffsetsPartition(self.where[1], timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(self.where[0], [partition])])
        response = await self._connection(leader).send(request)
        result = response.topics[0].partitions[0]
        if result.error_code:
            await self._view.refresh()
        else:
            self.position = max(result.offset, 0)

    async def _fetch(self, leader: NodeId) -> None:
        topic_id = self._view.topic_ids[self.where[0]]
        partition = FetchPartition(
            self.where[1], self._view.epoch(self.where), self.position, self._epoch, -1, _FETCH_BYTES
        )
        request = FetchRequest(
            max_bytes=_FETCH_BYTES, min_bytes=1, max_wait_ms=_WAIT_MS, session_epoch=-1,
            isolation_level=ISOLATIONS.index(self._plan.isolation),
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )  # fmt: skip
        response = await self._connection(leader).send(request)
        answers = [data for topic in response.responses for data in topic.partitions]
        if not answers:
            await self._view.refresh()
            return
        await self._on_answer(answers[0])

    async def _on_answer(self, data: Any) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._facts.went_back += 1
            self.position = self._epoch = -1
        elif data.error_code:
            await self._view.refresh()
        elif data.diverging_epoch.end_offset >= 0:  # KIP-320: the log was cut below the position
            self._facts.went_back += 1
            self.position, self._epoch = min(self.position, data.diverging_epoch.end_offset), data.diverging_epoch.epoch
        elif not self.stopped:
            self._on_records(bytes(data.records or b""))

    def _on_records(self, data: bytes) -> None:
        at = 0
        while at + HEADER_BYTES <= len(data):  # the last batch may be cut off
            header = parse_header(data, at)
            if at + header.size > len(data):
                return
            if not header.is_control:
                for record in iterate_records(data, at):
                    if record.offset >= self.position:
                        record_id = record_id_of(record.value)
                        self._facts.read[record_id] = self._facts.read.get(record_id, 0) + 1
            self.position, self._epoch = header.next_offset, header.leader_epoch
            at += header.size


async def read_all(
    consumer_plan: ConsumerPlan, topic: TopicPlan, clients: Clients, view: ClientView, facts: ConsumerFacts
) -> None:
    """A consumer without a group reads every partition."""
    await asyncio.sleep(consumer_plan.start_ms / 1000 - asyncio.get_running_loop().time())
    for index in range(topic.partitions):
        clients.spawn(PartitionReader(consumer_plan, (topic.name, index), -1, view, facts).run())
