"""A node's controller registers with the active controller, so that all nodes learn where it listens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.env.logging import get_logger
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.model.errors import ErrorCode
from ottla.model.ids import new_uuid
from ottla.protocol.generated import controller_registration_request as messages
from ottla.server.cluster.controller_channel import ActiveControllerChannel
from ottla.server.cluster.quorum import QuorumMember
from ottla.server.cluster.registration import listener_fields

if TYPE_CHECKING:
    from ottla.env.seams import RandomSource
    from ottla.server.node import Node

log = get_logger(__name__)

RETRY_MS = 200
REQUEST_TIMEOUT_MS = 5_000


class ControllerPart:
    def __init__(
        self, node: Node, quorum: QuorumMember, controller: ActiveControllerChannel, random: RandomSource
    ) -> None:
        self._node = node
        self._quorum = quorum
        self._controller = controller
        self._incarnation = new_uuid(random.token_bytes)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._register())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def _registered(self) -> bool:
        registration = self._quorum.publisher.image.controllers.get(self._node.config.node_id)
        return registration is not None and registration.incarnation_id == self._incarnation

    async def _register(self) -> None:
        """Retry until the registration is in the committed metadata."""
        while not self._registered:
            code = await self._attempt()
            if code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                log.warning("controller_registration.refused", reason=code.name)
            if not self._registered:
                await asyncio.sleep(RETRY_MS / 1000)

    async def _attempt(self) -> ErrorCode:
        response = await self._controller.submit(self._request(), None, timeout_ms=REQUEST_TIMEOUT_MS)
        return ErrorCode(response.error_code)

    def _request(self) -> messages.ControllerRegistrationRequest:
        config = self._node.config
        return messages.ControllerRegistrationRequest(
            controller_id=config.node_id,
            incarnation_id=self._incarnation,
            listeners=[
                messages.Listener(*listener_fields(endpoint))
                for endpoint in self._node.advertised(config.advertised_controller_listeners)
            ],
            features=[messages.Feature(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())],
        )
