"""The facts about a request that a handler gets beside its body."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ottla.broker.deferred import Answer

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.broker.planes import NodePlane

PlaneT_co = TypeVar("PlaneT_co", bound="NodePlane", covariant=True)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class RequestContext(Generic[PlaneT_co]):
    """`broker` is the node that the request came to, as far as the handler's plane shows it."""

    __slots__ = ("api_key", "broker", "client_id", "connection", "is_large", "started_ms", "version")

    def __init__(
        self, broker: PlaneT_co, connection: Connection, api_key: int, version: int, client_id: str | None
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.is_large = False
        """Whether the request is handled, and its answer encoded, in slices."""
        self.started_ms = 0.0
        """Set only where requests are timed."""

    @property
    def principal(self) -> str:
        return self.connection.principal

    def allowed(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether an ACL allows this operation to the principal; always True without an authorizer."""
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allowed(
            self.principal, self.client_host, operation, resource_type, name
        )

    def operations(self, resource_type: int, name: str) -> int:
        """The bit field of what this principal may do to a resource; only where there are ACLs."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            raise RuntimeError("there are no ACLs: every operation is allowed")
        return authorizer.operations(self.principal, self.client_host, resource_type, name)

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.listener


Handle: TypeAlias = Callable[[RequestContext[Any], RequestT], Answer[ResponseT]]
"""A handler, or a handler with its rule around it. The table of APIs pairs a handler with a node that has its plane."""
