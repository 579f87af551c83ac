"""This node as a broker of its own controller: registered at start, unfenced, kept alive by heartbeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.controller.runtime import ControllerRuntime
from ottla.controller.state import RequestContext as ControllerContext
from ottla.env.config.listeners import Endpoint
from ottla.env.logging import get_logger
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.meta_properties import MetaProperties
from ottla.model.errors import ErrorCode
from ottla.model.ids import Uuid
from ottla.protocol.generated import broker_registration_request as broker_messages
from ottla.protocol.generated import controller_registration_request as controller_messages
from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.server.errors import StartupError

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.log.log_store import LogStore
    from ottla.server.node import Node

log = get_logger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class LocalController:
    """The way to the active controller when it is in this process."""

    def __init__(self, runtime: ControllerRuntime) -> None:
        self._runtime = runtime

    async def submit(self, request: Any, context: RequestContext | None) -> Any:
        version = (
            type(request).MAX_VERSION if context is None or context.api_key != request.API_KEY else context.version
        )
        principal = "User:ANONYMOUS" if context is None else context.principal
        answer: Any = self._runtime.submit(request, ControllerContext(version=version, principal=principal))
        return await answer

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        response: AllocateProducerIdsResponse = await self.submit(request, None)
        return response


class Registration:
    def __init__(self, node: Node, quorum: ControllerRuntime, identity: MetaProperties, logs: LogStore) -> None:
        self._node = node
        self._quorum = quorum
        self._identity = identity
        self._logs = logs
        self._controller = LocalController(quorum)
        self._heartbeats: asyncio.Task[None] | None = None
        self.broker_epoch = -1

    async def register(self) -> None:
        """Controller first, then broker, then unfence; heartbeats follow."""
        incarnation = self._quorum.state.new_uuid()
        response = await self._controller.submit(self._controller_request(incarnation), None)
        self._check("controller", response.error_code)
        response = await self._controller.submit(self._broker_request(incarnation), None)
        self._check("broker", response.error_code)
        self.broker_epoch = response.broker_epoch
        await self._heartbeat()
        self._heartbeats = asyncio.ensure_future(self._keep_alive())

    def _check(self, what: str, error_code: int) -> None:
        if error_code:
            error = ErrorCode(error_code)
            raise StartupError(f"the {what} cannot be registered: {error.name}: {error.message}")

    def _controller_request(self, incarnation: Uuid) -> controller_messages.ControllerRegistrationRequest:
        config = self._node.config
        return controller_messages.ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=incarnation,
            listeners=[
                controller_messages.Listener(*_listener(endpoint))
                for endpoint in self._node.advertised(config.advertised_controller_listeners)
            ],
            features=[
                controller_messages.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
        )

    def _broker_request(self, incarnation: Uuid) -> broker_messages.BrokerRegistrationRequest:
        config = self._node.config
        return broker_messages.BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=incarnation,
            listeners=[
                broker_messages.Listener(*_listener(endpoint))
                for endpoint in self._node.advertised(config.advertised_broker_listeners)
            ],
            features=[
                broker_messages.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=config.broker_rack,
            log_dirs=[directory.directory_id for directory in self._logs.online_directories()],
            previous_broker_epoch=self._logs.previous_broker_epoch,
        )

    async def _heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._node.config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._quorum.publisher.offset,
            offline_log_dirs=[d.directory_id for d in self._logs.directories if d.offline],
        )
        response = await self._controller.submit(request, None)
        if response.error_code:
            log.error("heartbeat.refused", reason=ErrorCode(response.error_code).name)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._node.config.broker_heartbeat_interval_ms / 1000)
            await self._heartbeat()
            self._quorum.tick()

    def stop(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None


def _listener(endpoint: Endpoint) -> tuple[str, str, int, int]:
    return endpoint.listener_name, endpoint.host or "", endpoint.port, SECURITY_PROTOCOLS[endpoint.security_protocol]
