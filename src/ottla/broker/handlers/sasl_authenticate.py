"""SaslAuthenticate outside a login; inside one it is the gate's business (`ottla.broker.login.sasl_gate`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.protocol.generated.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.protocol.generated.sasl_authenticate_response import SaslAuthenticateResponse

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def handle(_context: RequestContext[NodePlane], _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
        error_message="SaslAuthenticate request received after successful authentication",
    )
