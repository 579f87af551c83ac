"""The way to the active controller: a call when it is in this process, else the wire.

A client's request travels in an Envelope with its principal, so that the controller authorizes the client and not this
node. The node's own requests have no envelope. Until the deadline a request follows the leadership of the quorum: no
leader, a lost connection or NOT_CONTROLLER cause a retry. So a request may be decided twice, as with Kafka.

Each kind of request has its own connection, because the controller answers the requests of one connection in order. A
heartbeat never waits for clients' requests, and a request that times out closes only the connection of its own kind.
A client's next request is read only after the answer, so `max.connections` limits the requests that wait here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.controller.state import ControllerRequestContext
from ottla.model.acls import Operation, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NodeId
from ottla.protocol.api import encode_request, response_class, response_header_version
from ottla.protocol.generated.default_principal_data import DefaultPrincipalData
from ottla.protocol.primitives import Message, skip_tags
from ottla.runtime.node_client import NodeClient, NodeUnavailable, UnsupportedByNode

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.planes import NodePlane
    from ottla.controller.runtime import ControllerRuntime
    from ottla.protocol.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
    from ottla.protocol.generated.allocate_producer_ids_response import AllocateProducerIdsResponse
    from ottla.security.outgoing import PeerSecurity

RETRY_MS = 50
PRINCIPAL_VERSION = 0
_FORWARDING = "forwarding"
_KINDS = {
    62: "heartbeat",  # BrokerRegistration
    63: "heartbeat",  # BrokerHeartbeat
    56: "alter-partition",  # AlterPartition
    73: "directory-assignments",  # AssignReplicasToDirs
    70: "registration",  # ControllerRegistration
    67: "producer-ids",  # AllocateProducerIds
}
"""API key -> kind of a request that the node sends for itself; every other request is of the kind "forwarding"."""


class ControllerAddress(NamedTuple):
    id: NodeId
    host: str
    port: int


class ActiveControllerChannel:
    def __init__(
        self,
        node_id: NodeId,
        *,
        local: ControllerRuntime | None,
        is_active: Callable[[], bool],
        leader: Callable[[], ControllerAddress | None],
        timeout_ms: int = 30_000,
        security: PeerSecurity | None = None,
    ) -> None:
        self._security = security
        self._node_id = node_id
        self._local = local
        self._is_active = is_active
        self._leader = leader
        self._timeout_ms = timeout_ms
        self._clients: dict[str, NodeClient] = {}
        self._connected_to: ControllerAddress | None = None

    @property
    def active(self) -> bool:
        """Whether this very node is the active controller."""
        return self._local is not None and self._is_active()

    async def submit(
        self,
        request: Any,
        context: RequestContext[NodePlane] | None,
        *,
        timeout_ms: float | None = None,
        once: bool = False,
    ) -> Any:
        """The controller's answer; without an answer in time, the API's response with REQUEST_TIMED_OUT. With `once`
        an answer of NOT_CONTROLLER is returned, not retried."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout_ms if timeout_ms is None else timeout_ms) / 1000
        while True:
            try:
                if self._local is not None and self._is_active():
                    decision: Any = self._local.submit(request, _controller_context(request, context))
                    response = await decision
                else:
                    response = await self._ask_leader(request, context, deadline)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                response = None
            if response is not None and (once or not _not_controller(response)):
                return response
            if loop.time() + RETRY_MS / 1000 >= deadline:
                from ottla.controller.error_responses import error_response

                return error_response(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            await asyncio.sleep(RETRY_MS / 1000)

    async def _ask_leader(self, request: Any, context: RequestContext[NodePlane] | None, deadline: float) -> Any:
        """One try over the wire; None if no controller answered."""
        leader = self._leader()
        if leader is None or leader.id == self._node_id:
            return None
        left_ms = (deadline - asyncio.get_running_loop().time()) * 1000
        client = self._client(leader, _kind(request, context))
        try:
            if context is None:
                return await client.send(request, timeout_ms=max(left_ms, 1))
            return await _forward(client, request, context, max(left_ms, 1))
        except UnsupportedByNode as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        except NodeUnavailable:
            return None

    async def decide(self, request: Any, context: RequestContext[NodePlane] | None) -> Any:
        """The answer of this node's own controller. Raises KafkaError (NOT_CONTROLLER) while the controller is not active."""
        if self._local is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        decision: Any = self._local.submit(request, _controller_context(request, context))
        return await decision

    def _client(self, leader: ControllerAddress, kind: str) -> NodeClient:
        if leader != self._connected_to:
            self.close()
            self._connected_to = leader
        client = self._clients.get(kind)
        if client is None:
            client = self._clients[kind] = NodeClient(
                leader.host,
                leader.port,
                client_id=f"broker-{self._node_id}",
                request_timeout_ms=self._timeout_ms,
                security=self._security,
            )
        return client

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        response: AllocateProducerIdsResponse = await self.submit(request, None)
        return response

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients = {}


def _kind(request: Any, context: RequestContext[NodePlane] | None) -> str:
    return _FORWARDING if context is not None else _KINDS.get(request.API_KEY, _FORWARDING)


def _version(request: Any, context: RequestContext[NodePlane] | None) -> int:
    if context is None or context.api_key != request.API_KEY:
        version: int = type(request).MAX_VERSION
        return version
    return context.version


def _controller_context(request: Any, context: RequestContext[NodePlane] | None) -> ControllerRequestContext:
    """The client's rights, for the decision. The node itself (no context) may write everywhere."""
    version = _version(request, context)
    if context is None:
        return ControllerRequestContext(version=version)
    return ControllerRequestContext(
        version=version,
        principal=context.principal,
        may_write=lambda topic: context.allowed(Operation.WRITE, ResourceType.TOPIC, topic),
    )


def _not_controller(response: Any) -> bool:
    return getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER


async def _forward(client: NodeClient, request: Message, context: RequestContext[NodePlane], timeout_ms: float) -> Any:
    """Send the request in an Envelope. Raises KafkaError (NOT_CONTROLLER) if the other node is not the controller."""
    from ottla.protocol.generated.envelope_request import EnvelopeRequest

    version = _version(request, context)
    frame = b"".join(bytes(piece) for piece in encode_request(request, version, 0, context.client_id))
    envelope = EnvelopeRequest(
        request_data=frame[4:],
        request_principal=encode_principal(context.principal),
        client_host_address=_address(context.client_host),
    )
    answer = await client.send(envelope, timeout_ms=timeout_ms)
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code))
    data = answer.response_data
    position = 4
    if response_header_version(request.API_KEY, version):
        position = skip_tags(data, position)
    response, _ = response_class(request.API_KEY).decode(data, position, version)
    return response


def encode_principal(principal: str) -> bytes:
    """As Kafka's own serializer has it: the version, then the message."""
    kind, _, name = principal.partition(":")
    out: list[Any] = [PRINCIPAL_VERSION.to_bytes(2, "big")]
    DefaultPrincipalData(kind, name).encode(out, PRINCIPAL_VERSION)
    return b"".join(out)


def _address(host: str) -> bytes:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host)
        except OSError:
            continue
    return bytes(4)
