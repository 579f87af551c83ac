"""BrokerHeartbeat at the controller. The connection that carries it is a sign of life too: when it breaks, somebody
looks whether the broker is still there, instead of waiting for its session to run out.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.context import RequestContext
from ottla.broker.handlers import decided
from ottla.protocol.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from ottla.protocol.generated.broker_heartbeat_response import BrokerHeartbeatResponse


async def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    response: BrokerHeartbeatResponse = await decided.handle(context, request)
    if not response.error_code:
        context.connection.when_closed = partial(
            context.broker.on_broker_disconnected, request.broker_id, request.broker_epoch
        )
    return response
