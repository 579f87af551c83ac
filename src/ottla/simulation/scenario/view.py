"""What the clients of a scenario know of the cluster: leaders, from Metadata answers of any broker that answers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ottla.protocol.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.runtime.shared_futures import outcome_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.model.ids import NodeId, Uuid
    from ottla.protocol.generated.metadata_response import MetadataResponse
    from ottla.simulation.scenario.facts import TopicPartition

RETRY_S = 0.1
"""retry.backoff.ms of Kafka's clients."""
_METADATA_TIMEOUT_MS = 2_000.0


def connection(broker: NodeId, timeout_ms: float, *, in_flight: int = 5) -> NodeClient:
    return NodeClient(
        f"10.0.0.{broker}", 9092, client_id="simulated", request_timeout_ms=timeout_ms, max_in_flight=in_flight
    )


class ClientView:
    def __init__(self, brokers: Sequence[NodeId], topics: Sequence[str], seed: int) -> None:
        self._brokers = list(brokers)
        random.Random(seed).shuffle(self._brokers)  # noqa: S311 - a simulation must be repeatable
        self._topics = list(topics)
        self._clients = {broker: connection(broker, _METADATA_TIMEOUT_MS) for broker in self._brokers}
        self._leaders: dict[TopicPartition, tuple[NodeId, int]] = {}
        self._refresh: asyncio.Task[None] | None = None
        self.topic_ids: dict[str, Uuid] = {}

    def leader(self, where: TopicPartition) -> NodeId | None:
        leader, _ = self._leaders.get(where, (-1, -1))
        return leader if leader >= 0 else None

    async def refresh(self) -> None:
        """Ask the next broker, after a pause; callers at the same time share an answer."""
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.get_running_loop().create_task(self._ask())
        await outcome_of(self._refresh)

    async def _ask(self) -> None:
        await asyncio.sleep(RETRY_S)
        broker = self._brokers.pop(0)
        self._brokers.append(broker)
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in self._topics])
        try:
            self._learn(await self._clients[broker].send(request))
        except NodeUnavailable:
            return

    def _learn(self, response: MetadataResponse) -> None:
        """A broker that is cut off answers with an older epoch: the newest epoch counts, as in KIP-320."""
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                continue
            self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                where = (topic.name, partition.partition_index)
                if partition.leader_epoch >= self._leaders.get(where, (-1, -1))[1]:
                    self._leaders[where] = (partition.leader_id, partition.leader_epoch)

    def epoch(self, where: TopicPartition) -> int:
        return self._leaders.get(where, (-1, -1))[1]
