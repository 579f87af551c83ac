"""SaslHandshake where there is nothing to log in to: no SASL on this listener, or the client is in already."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.sasl_handshake_request import SaslHandshakeRequest
from ottla.protocol.generated.sasl_handshake_response import SaslHandshakeResponse


def handle(_context: RequestContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
