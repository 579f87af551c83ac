"""SaslHandshake where there is nothing to log in to: no SASL on this listener, or the client is in already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest
from ottla.protocol.generated.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(_context: RequestContext[NodePlane], _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
