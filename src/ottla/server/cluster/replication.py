"""Replication over the wire: a fetch loop per leader, ISR proposals and directory assignments.

The logic is in `ottla.replication`; this module has only connections and tasks and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.model.errors import KafkaError
from ottla.model.ids import NodeId
from ottla.protocol.generated.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.offset_timestamps import EARLIEST, LATEST
from ottla.replication.directories import DirectoryAssignments
from ottla.replication.proposals import IsrProposals
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.security.outgoing import to_brokers

if TYPE_CHECKING:
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.env.seams import Timers
    from ottla.metadata.image import RegisteredEndpoint
    from ottla.protocol.generated.fetch_request import FetchRequest
    from ottla.replication.fetcher import FollowedPartition, ReplicaFetcher
    from ottla.replication.replicas import Replicas
    from ottla.server.cluster.controller_channel import ActiveControllerChannel

log = get_logger(__name__)

SMALLEST_PAUSE_MS = 5.0


class Replication:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        replicas: Replicas,
        timers: Timers,
        controller: ActiveControllerChannel,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._controller = controller
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: dict[NodeId, asyncio.Event] = {}
        self._clients: dict[NodeId, NodeClient] = {}
        proposals = IsrProposals(replicas.context, timers, self._send)
        replicas.context.propose = proposals.propose
        replicas.fetchers.on_changed = self._on_changed
        replicas.directories = DirectoryAssignments(replicas.context, timers, self._send)

    def start(self) -> None:
        for source in self._replicas.fetchers.by_source:
            self._on_changed(source)
        self._spawn(self._shrink())

    async def stop(self) -> None:
        self._replicas.fetchers.on_changed = lambda _source: None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients.values():
            client.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("replication.failed", exc_info=task.exception())

    # The ISR

    async def _shrink(self) -> None:
        while True:
            context = self._replicas.context
            context.lag_time_max_ms = self._config().replica_lag_time_max_ms
            await asyncio.sleep(context.lag_time_max_ms / 2000)
            try:
                self._replicas.shrink_isrs()
            except Exception as error:  # a bug in one turn must not keep dead followers in every ISR for good
                log.error("isr.not_shrunk", exc_info=error)

    def _send(self, request: Any, done: Callable[[Any], None]) -> None:
        """Send to the active controller; `done` gets None if it did not answer."""

        async def send() -> None:
            response = None
            try:
                response = await self._controller.submit(request, None)
            except KafkaError as error:
                log.info("controller.not_reached", request=type(request).__name__, reason=error.message)
            except Exception as error:  # without an answer the proposal waits for ever, and no ISR changes
                log.error("controller.not_reached", request=type(request).__name__, exc_info=error)
            done(response)

        self._spawn(send())

    # Following

    def _on_changed(self, source: NodeId) -> None:
        event = self._loops.get(source)
        if event is not None:
            event.set()
            return
        self._loops[source] = asyncio.Event()
        self._spawn(self._follow(self._replicas.fetchers.by_source[source]))

    async def _follow(self, fetcher: ReplicaFetcher) -> None:
        changed = self._loops[fetcher.source_id]
        while True:
            changed.clear()
            request = fetcher.request()
            if request is None:
                await self._pause(changed, fetcher.rest_ms())
                continue
            try:
                await self._fetch(fetcher, request)
            except Exception as error:  # a bug in one turn must not end the following of this leader for good
                log.error("fetch.failed", source=fetcher.source_id, exc_info=error)
                fetcher.on_failure()

    async def _fetch(self, fetcher: ReplicaFetcher, request: FetchRequest) -> None:
        client = self._client(fetcher.source_id)
        if client is None:
            fetcher.on_failure()
            return
        try:
            response = await client.send(request, timeout_ms=self._config().replica_socket_timeout_ms)
        except NodeUnavailable as error:
            log.info("fetch.failed", source=fetcher.source_id, reason=str(error))
            fetcher.on_failure()
            return
        fetcher.on_response(response)
        lost = fetcher.out_of_range()
        if lost:
            await self._look_up(client, fetcher, lost)

    async def _pause(self, changed: asyncio.Event, pause_ms: float) -> None:
        try:
            async with asyncio.timeout(max(pause_ms, SMALLEST_PAUSE_MS) / 1000 if pause_ms < 1e9 else None):
                await changed.wait()
        except TimeoutError:
            return

    def _client(self, source: NodeId) -> NodeClient | None:
        endpoint = self._endpoint(source)
        if endpoint is None:
            return None
        client = self._clients.get(source)
        if client is None or (client.host, client.port) != (endpoint.host, endpoint.port):
            if client is not None:
                client.close()
            client = self._clients[source] = NodeClient(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._replicas.context.node_id}-fetcher-0",
                security=to_brokers(self._config()),
            )
        return client

    def _endpoint(self, source: NodeId) -> RegisteredEndpoint | None:
        broker = self._replicas.context.broker(source)
        return None if broker is None else broker.listeners.get(self._config().inter_broker_listener)

    async def _look_up(self, client: NodeClient, fetcher: ReplicaFetcher, lost: list[FollowedPartition]) -> None:
        """Ask where the leader's logs begin and end."""
        try:
            earliest = await self._offsets(client, lost, EARLIEST)
            latest = await self._offsets(client, lost, LATEST)
        except NodeUnavailable:
            earliest, latest = {}, {}
        for followed in lost:
            tp = followed.partition.topic_partition
            fetcher.on_offsets(followed, earliest.get(tp, -1), latest.get(tp, -1))

    async def _offsets(self, client: NodeClient, lost: list[FollowedPartition], timestamp: int) -> dict[Any, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for followed in lost:
            topic, index = followed.partition.topic_partition
            topic_request = topics.setdefault(topic, ListOffsetsTopic(topic, []))
            topic_request.partitions.append(ListOffsetsPartition(index, followed.leader_epoch, timestamp))
        request = ListOffsetsRequest(replica_id=self._replicas.context.node_id, topics=list(topics.values()))
        response = await client.send(request)
        return {
            (topic.name, partition.partition_index): partition.offset
            for topic in response.topics
            for partition in topic.partitions
            if not partition.error_code
        }
