"""BrokerHeartbeat at the controller. The heartbeat's connection is a sign of life too. When the connection breaks, the
controller checks whether the broker still runs, and does not wait for the end of its session.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.handlers import decided
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


async def handle(context: RequestContext[ControlPlane], request: BrokerHeartbeatRequest) -> Message:
    response = await decided.handle(context, request)
    if isinstance(response, BrokerHeartbeatResponse) and not response.error_code:
        context.connection.when_closed = partial(
            context.broker.on_broker_disconnected, request.broker_id, request.broker_epoch
        )
    return response
