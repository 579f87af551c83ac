"""Connections to other brokers for occasional requests: markers, verification. Fetches have their own connections.

A broker answers the requests of one connection in order, and a marker waits for its replicas. So every API has its own
connection: a verification or a share group's state never waits for markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.model.ids import NodeId
from ottla.runtime.node_client import NodeClient, NodeUnavailable
from ottla.security.outgoing import to_brokers

if TYPE_CHECKING:
    from ottla.env.config.broker.config import BrokerConfig
    from ottla.metadata.image import RegisteredEndpoint
    from ottla.metadata.publisher import MetadataPublisher

log = get_logger(__name__)


class BrokerPeers:
    def __init__(self, config: Callable[[], BrokerConfig], metadata: MetadataPublisher) -> None:
        self._config = config
        self._metadata = metadata
        self._clients: dict[tuple[NodeId, int], NodeClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, broker_id: NodeId, request: Any, done: Callable[[Any], None]) -> None:
        task = asyncio.ensure_future(self._send(broker_id, request, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, broker_id: NodeId, request: Any, done: Callable[[Any], None]) -> None:
        response = None
        try:
            client = self._client(broker_id, request.API_KEY)
            if client is not None:
                response = await client.send(request, timeout_ms=self._config().request_timeout_ms)
        except NodeUnavailable as error:
            log.info("peer.not_reached", broker=broker_id, reason=str(error))
        except Exception as error:  # without an answer the caller waits for ever: a transaction would not end
            log.error("peer.not_reached", broker=broker_id, exc_info=error)
        done(response)

    def _client(self, broker_id: NodeId, api_key: int) -> NodeClient | None:
        endpoint = self.endpoint(broker_id)
        if endpoint is None:
            return None
        client = self._clients.get((broker_id, api_key))
        if client is None or (client.host, client.port) != (endpoint.host, endpoint.port):
            if client is not None:
                client.close()
            client = self._clients[broker_id, api_key] = NodeClient(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._config().node_id}",
                security=to_brokers(self._config()),
            )
        return client

    def endpoint(self, broker_id: NodeId) -> RegisteredEndpoint | None:
        """Where the other broker listens for brokers."""
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.listeners.get(self._config().inter_broker_listener)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for client in self._clients.values():
            client.close()
