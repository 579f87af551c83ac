"""Members of a consumer group (KIP-848): heartbeats, assignments, and commits of positions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ErrorCode
from ottla.protocol.generated import consumer_group_heartbeat_request as heartbeat
from ottla.protocol.generated.find_coordinator_request import FindCoordinatorRequest
from ottla.protocol.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.simulation.scenario.consumer import PartitionReader
from ottla.simulation.scenario.view import RETRY_S, connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.model.ids import NodeId
    from ottla.simulation.clients import Clients
    from ottla.simulation.scenario.facts import ConsumerFacts
    from ottla.simulation.scenario.plan import ConsumerPlan
    from ottla.simulation.scenario.view import ClientView

_REBALANCE_MS = 60_000
_TIMEOUT_MS = 5_000.0
_COMMIT_VERSION = 9
"""The last versions of OffsetCommit and OffsetFetch that name topics."""
_REJOIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID})


class ScenarioMember:
    def __init__(
        self, consumer_plan: ConsumerPlan, member_id: str, clients: Clients, view: ClientView, facts: ConsumerFacts
    ) -> None:
        self._plan = consumer_plan
        self._member_id = member_id
        self._clients = clients
        self._view = view
        self._facts = facts
        self._epoch = 0
        self._readers: dict[int, PartitionReader] = {}
        self._connections: dict[NodeId, NodeClient] = {}
        self._coordinator: NodeId | None = None
        self._interval_s = RETRY_S
        self._commit_at_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._plan.start_ms / 1000 - loop.time())
        beat_at_s = loop.time()
        while True:
            try:
                if loop.time() >= beat_at_s:
                    changed = await self._beat()
                    beat_at_s = loop.time() + (0.0 if changed else self._interval_s)
                if loop.time() >= self._commit_at_s:
                    await self._commit(list(self._readers.values()))
                    self._commit_at_s = loop.time() + self._plan.commit_ms / 1000
            except NodeUnavailable:
                self._coordinator = None
                beat_at_s = loop.time() + RETRY_S
            await asyncio.sleep(max(RETRY_S / 10, min(beat_at_s, self._commit_at_s) - loop.time()))

    async def _send(self, request: Any, *, version: int | None = None) -> Any:
        """To the group's coordinator. Raises NodeUnavailable."""
        if self._coordinator is None:
            await self._find_coordinator()
        broker = self._coordinator
        if broker is None:
            raise NodeUnavailable(f"group {self._plan.group} has no coordinator")
        if broker not in self._connections:
            self._connections[broker] = connection(broker, _TIMEOUT_MS)
        return await self._connections[broker].send(request, version=version)

    async def _find_coordinator(self) -> None:
        for node in self._clients.nodes:
            if not node.spec.partitions:
                continue
            if node.node_id not in self._connections:
                self._connections[node.node_id] = connection(node.node_id, _TIMEOUT_MS)
            try:
                response = await self._connections[node.node_id].send(
                    FindCoordinatorRequest(key_type=0, coordinator_keys=[self._plan.group]), timeout_ms=2_000
                )
            except NodeUnavailable:
                continue
            if not response.coordinators[0].error_code:
                self._coordinator = response.coordinators[0].node_id
                return

    def _on_error(self, code: int) -> None:
        """The member asks for the coordinator again, or begins again as a new member."""
        if ErrorCode(code) in _REJOIN:
            self._epoch = 0
            self._stop(list(self._readers))
        else:
            self._coordinator = None

    # -------------------------------------------------------------------------------------------------------- membership

    async def _beat(self) -> bool:
        """Whether the assignment has changed, so that the next heartbeat reports the new partitions at once."""
        joining = self._epoch == 0
        topic_id = self._view.topic_ids.get(self._plan.topic)
        if topic_id is None:
            await self._view.refresh()
            return True
        owned = [heartbeat.TopicPartitions(topic_id, sorted(self._readers))] if self._readers else []
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._plan.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=[self._plan.topic] if joining else None,
            topic_partitions=[] if joining else owned,
        )
        response = await self._send(request)
        if response.error_code:
            self._on_error(response.error_code)
            raise NodeUnavailable(ErrorCode(response.error_code).name)
        self._epoch = response.member_epoch
        self._interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is None:
            return False
        target = {index for topic in response.assignment.topic_partitions for index in topic.partitions}
        return await self._reconcile(target)

    async def _reconcile(self, target: set[int]) -> bool:
        revoked = [index for index in sorted(self._readers) if index not in target]
        added = [index for index in sorted(target) if index not in self._readers]
        if revoked:
            readers = [self._readers[index] for index in revoked]
            self._stop(revoked)
            await self._commit(readers)
        if added:
            for index, offset in (await self._committed(added)).items():
                reader = PartitionReader(self._plan, (self._plan.topic, index), offset, self._view, self._facts)
                self._readers[index] = reader
                self._clients.spawn(reader.run())
        return bool(revoked or added)

    def _stop(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self._readers.pop(index).stopped = True

    # ----------------------------------------------------------------------------------------------------------- offsets

    async def _committed(self, indexes: Sequence[int]) -> dict[int, int]:
        topics = [OffsetFetchRequestTopics(self._plan.topic, partition_indexes=list(indexes))]
        group = OffsetFetchRequestGroup(self._plan.group, self._member_id, self._epoch, topics)
        response = await self._send(OffsetFetchRequest(groups=[group], require_stable=True), version=_COMMIT_VERSION)
        answer = response.groups[0]
        if answer.error_code:
            self._on_error(answer.error_code)
            raise NodeUnavailable(ErrorCode(answer.error_code).name)
        return {part.partition_index: part.committed_offset for topic in answer.topics for part in topic.partitions}

    async def _commit(self, readers: Sequence[PartitionReader]) -> None:
        positions = [(reader.where[1], reader.position) for reader in readers if reader.position >= 0]
        if not positions:
            return
        partitions = [OffsetCommitRequestPartition(index, position) for index, position in positions]
        topic = OffsetCommitRequestTopic(self._plan.topic, partitions=partitions)
        request = OffsetCommitRequest(self._plan.group, self._epoch, self._member_id, topics=[topic])
        response = await self._send(request, version=_COMMIT_VERSION)
        codes = [part.error_code for answer in response.topics for part in answer.partitions if part.error_code]
        if codes:
            self._on_error(codes[0])
