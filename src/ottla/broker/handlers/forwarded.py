"""Everything that changes the cluster's metadata or its voters, and DescribeQuorum: decided by the active controller."""

from __future__ import annotations

from typing import Any

from ottla.broker.context import RequestContext


async def handle(context: RequestContext, request: Any) -> Any:
    return await context.broker.controller.submit(request, context)
