"""Everything that changes the cluster's metadata or its voters, and DescribeQuorum: decided by the active controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


def handle(context: RequestContext[ControlPlane], request: Message) -> Awaitable[Message]:
    return context.broker.controller.submit(request, context)
