"""This node as a broker of the cluster: it registers, sends heartbeats, is unfenced when it is ready, and hands over
leadership before it stops.

A clean shutdown stores the broker epoch on disk with the logs (`LogStore.shutdown`). The next registration sends this
epoch as proof that no records were lost (KIP-966).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.config.listeners import Endpoint
from ottla.env.logging import get_logger
from ottla.metadata.features import CORDONED_DIRECTORIES_SINCE, SUPPORTED_FEATURES
from ottla.metadata.meta_properties import MetaProperties
from ottla.metadata.publisher import MetadataPublisher
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import Uuid
from ottla.protocol.generated import broker_registration_request as broker_messages
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.server.cluster.controller_channel import ActiveControllerChannel
from ottla.server.errors import StartupError

if TYPE_CHECKING:
    from ottla.log.log_store import LogStore
    from ottla.server.node import Node

log = get_logger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
RETRY_MS = 100
CATCH_UP_MS = 10
CONTROLLED_SHUTDOWN_MS = 60_000
NO_CONTROLLER_MS = 4_000
_PASSING = frozenset(
    {ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_ID_NOT_REGISTERED}
)
"""Errors that pass: for the controller a previous incarnation may still be alive, until its session ends."""


class Registration:
    def __init__(
        self,
        node: Node,
        controller: ActiveControllerChannel,
        metadata: MetadataPublisher,
        identity: MetaProperties,
        logs: LogStore,
        *,
        incarnation: Uuid,
        on_epoch: Callable[[int], None] = lambda _epoch: None,
        on_replaced: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """`on_epoch` gets every broker epoch of this node. `on_replaced` is called if a different server has
        registered our id.
        """
        self._node = node
        self._controller = controller
        self._metadata = metadata
        self._identity = identity
        self._logs = logs
        self._incarnation = incarnation
        self._on_epoch = on_epoch
        self._on_replaced = on_replaced
        self._heartbeats: asyncio.Task[None] | None = None
        self.broker_epoch = -1

    # ---------------------------------------------------------------------------------------------------------- start

    async def register(self) -> None:
        """Retry until the controller accepts the registration. Raises StartupError if the controller refuses it."""
        await self._register_broker(self._node.config.initial_broker_registration_timeout_ms)
        while self._metadata.offset < self.broker_epoch:  # noqa: ASYNC110 - the publisher has no event to wait for
            await asyncio.sleep(CATCH_UP_MS / 1000)

    async def _register_broker(self, timeout_ms: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            left_ms = max((deadline - loop.time()) * 1000, RETRY_MS)
            response = await self._controller.submit(self._broker_request(), None, timeout_ms=left_ms)
            code = ErrorCode(response.error_code)
            if code not in _PASSING or loop.time() >= deadline:
                break
            log.info("registration.delayed", reason=code.name)
            await asyncio.sleep(RETRY_MS / 1000)
        self._check("broker", code)
        self.broker_epoch = response.broker_epoch
        self._on_epoch(self.broker_epoch)

    @property
    def alone(self) -> bool:
        """Whether the cluster has no other broker."""
        return not any(broker_id != self._node.config.node_id for broker_id in self._metadata.image.brokers)

    async def unfence(self) -> None:
        """Ready to lead. Heartbeats follow."""
        while True:
            response = await self._heartbeat()
            if not response.error_code and not response.is_fenced:
                break
            await asyncio.sleep(CATCH_UP_MS / 1000)
        self._heartbeats = asyncio.ensure_future(self._keep_alive())

    def _check(self, what: str, error_code: int) -> None:
        if error_code:
            error = ErrorCode(error_code)
            raise StartupError(f"the {what} cannot be registered: {error.name}: {error.message}")

    def _broker_request(self) -> broker_messages.BrokerRegistrationRequest:
        config = self._node.config
        return broker_messages.BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[
                broker_messages.Listener(*listener_fields(endpoint))
                for endpoint in self._node.advertised(config.advertised_broker_listeners)
            ],
            features=[
                broker_messages.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=config.broker_rack,
            log_dirs=[directory.directory_id for directory in self._logs.online_directories()],
            previous_broker_epoch=self._logs.previous_broker_epoch,
        )

    # ------------------------------------------------------------------------------------------------------- heartbeats

    async def _heartbeat(
        self, *, want_shut_down: bool = False, timeout_ms: float | None = None
    ) -> BrokerHeartbeatResponse:
        config = self._node.config
        request = BrokerHeartbeatRequest(
            broker_id=config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata.offset,
            want_shut_down=want_shut_down,
            offline_log_dirs=[d.directory_id for d in self._logs.directories if d.offline],
        )
        if self._metadata.image.metadata_version >= CORDONED_DIRECTORIES_SINCE:
            request.cordoned_log_dirs = [d.directory_id for d in self._logs.directories if d.cordoned]
        # A heartbeat that hangs must not keep the next heartbeat from finding a new controller in time.
        limit_ms = config.broker_session_timeout_ms / 2 if timeout_ms is None else timeout_ms
        response: BrokerHeartbeatResponse = await self._controller.submit(request, None, timeout_ms=limit_ms)
        if response.error_code and not want_shut_down:
            await self._on_refused(ErrorCode(response.error_code))
        return response

    async def _on_refused(self, code: ErrorCode) -> None:
        log.warning("heartbeat.refused", reason=code.name)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            registration = self._metadata.image.brokers.get(self._node.config.node_id)
            if registration is None or registration.incarnation_id == self._incarnation:
                # An admin unregistered this broker while it runs, or its epoch is not the latest: register again.
                await self._register_broker(self._node.config.broker_session_timeout_ms)
            else:
                # The other server now leads the partitions of our id: two leaders of one epoch would both take records.
                self._on_replaced(f"another server has registered as broker {registration.id} of this cluster")

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._node.config.broker_heartbeat_interval_ms / 1000)
            await self._beat()

    async def _beat(self) -> None:
        try:
            await self._heartbeat()
        except (StartupError, KafkaError) as error:
            log.error("registration.lost", reason=str(error))
        except Exception as error:  # a broker whose heartbeats end with a bug would be fenced for good
            log.error("heartbeat.failed", exc_info=error)

    def beat_now(self) -> None:
        """Send a heartbeat now, for a change that the controller needs before the next interval: a directory failed or
        is cordoned.
        """
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = asyncio.ensure_future(self._beat_and_keep_alive())

    async def _beat_and_keep_alive(self) -> None:
        await self._beat()
        await self._keep_alive()

    # ------------------------------------------------------------------------------------------------------------ stop

    async def shut_down(self, timeout_ms: float = CONTROLLED_SHUTDOWN_MS) -> None:
        """Controlled shutdown: the controller moves leadership to other brokers, and then allows the shutdown. If no
        controller answers, leadership is not handed over."""
        self.stop()
        if self.broker_epoch < 0 or self.alone:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while loop.time() < deadline:
            response = await self._heartbeat(want_shut_down=True, timeout_ms=NO_CONTROLLER_MS)
            if response.should_shut_down:
                return
            if response.error_code:
                break
            await asyncio.sleep(RETRY_MS / 1000)
        log.warning("controlled_shutdown.ended", reason="the controller did not confirm that the shutdown is safe")

    def stop(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None


def listener_fields(endpoint: Endpoint) -> tuple[str, str, int, int]:
    return endpoint.listener_name, endpoint.host or "", endpoint.port, SECURITY_PROTOCOLS[endpoint.security_protocol]
