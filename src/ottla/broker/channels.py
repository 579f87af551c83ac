"""A node's ways to other nodes, as handlers see them: the active controller, the quorum, the other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.planes import NodePlane
    from ottla.model.ids import NodeId


class ControllerChannel(Protocol):
    """The way to the active controller: in this process, or over the wire. The answer is the request's response."""

    def submit(self, request: Message, context: RequestContext[NodePlane] | None) -> Awaitable[Any]: ...

    def decide(self, request: Message, context: RequestContext[NodePlane] | None) -> Awaitable[Any]:
        """Only by the controller of this node: None when it is not the active one."""
        ...


class Peers(Protocol):
    """The way to the other brokers."""

    def send(self, broker_id: NodeId, request: Message, done: Callable[[Any], None]) -> None:
        """`done` gets the response, or None when there is none."""
        ...


class NoPeers:
    """A broker that cannot reach any other."""

    def send(self, broker_id: NodeId, request: Message, done: Callable[[Any], None]) -> None:
        del broker_id, request
        done(None)


class QuorumChannel(Protocol):
    """This node as a member of the metadata quorum."""

    @property
    def leader_id(self) -> NodeId: ...

    @property
    def kraft_version(self) -> int: ...

    def receive(self, request: Message, version: int, reply: Callable[[Message], None]) -> None:
        """A request of another member."""
        ...
