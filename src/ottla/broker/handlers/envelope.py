"""Envelope (KIP-590): a broker hands on a client's request with the client's principal; the controller answers it.

Only the active controller opens an envelope. Any other controller answers NOT_CONTROLLER, and the broker looks for the
active controller.
"""

from __future__ import annotations

import inspect
import socket
from typing import TYPE_CHECKING, Any

from ottla.broker.apis import BROKER_APIS, CONTROLLER_APIS
from ottla.broker.context import RequestContext
from ottla.env.logging import get_logger
from ottla.model.errors import ErrorCode
from ottla.protocol.api import decode_request_header, encode_response, request_class
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.generated.default_principal_data import DefaultPrincipalData
from ottla.protocol.generated.envelope_request import EnvelopeRequest
from ottla.protocol.generated.envelope_response import EnvelopeResponse
from ottla.protocol.primitives import DecodeError, Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane

log = get_logger(__name__)

_TOKENS = frozenset({ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN})
FORWARDABLE = _TOKENS | frozenset(
    key for key, api in BROKER_APIS.items() if api.handler == "forwarded" and key in CONTROLLER_APIS
)
"""What a client may ask of a broker; what nodes ask for themselves comes without an envelope."""


class ForwardedContext(RequestContext["ControlPlane"]):
    """The client's request as the broker got it: its principal and address are those in the envelope."""

    __slots__ = ("_client_host", "_principal")

    def __init__(
        self,
        outer: RequestContext[ControlPlane],
        api_key: int,
        version: int,
        client_id: str | None,
        principal: str,
        host: str,
    ) -> None:
        super().__init__(outer.broker, outer.connection, api_key, version, client_id)
        self._principal = principal
        self._client_host = host

    @property
    def principal(self) -> str:
        return self._principal

    @property
    def client_host(self) -> str:
        return self._client_host


async def handle(context: RequestContext[ControlPlane], request: EnvelopeRequest) -> EnvelopeResponse:
    try:
        data = bytes(request.request_data)
        api_key, version, correlation_id, client_id, position = decode_request_header(data)
        if api_key not in FORWARDABLE:
            return EnvelopeResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        inner_class = request_class(api_key)
        if not inner_class.MIN_VERSION <= version <= inner_class.MAX_VERSION:
            return EnvelopeResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
        inner, _ = inner_class.decode(data, position, version)
        principal = decode_principal(request.request_principal)
    except DecodeError as error:
        log.warning("envelope.refused", reason=str(error))
        return EnvelopeResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    host = _host(bytes(request.client_host_address))
    forwarded = ForwardedContext(context, api_key, version, client_id, principal, host)
    response = await _answer(forwarded, inner)
    frame = b"".join(bytes(piece) for piece in encode_response(response, version, correlation_id))
    return EnvelopeResponse(response_data=frame[4:])


async def _answer(context: ForwardedContext, request: Message) -> Message:
    """What the client may have of the controller's answer. The KafkaError of a controller that is not active
    (NOT_CONTROLLER) becomes the envelope's error code.
    """
    if context.broker.authorizer is None:
        decided: Message = await context.broker.controller.decide(request, context)
        return decided
    from ottla.broker.authorization import guarded

    answer: Any = guarded(context, request, lambda inner, allowed: context.broker.controller.decide(allowed, inner))
    response: Message = await answer if inspect.isawaitable(answer) else answer
    return response


def decode_principal(data: bytes | None) -> str:
    if data is None:
        raise DecodeError("an envelope without a principal")
    raw = bytes(data)
    if int.from_bytes(raw[:2], "big") != 0:
        raise DecodeError("a principal in a version that is not known")
    principal, _ = DefaultPrincipalData.decode(raw, 2, 0)
    return f"{principal.type}:{principal.name}"


def _host(address: bytes) -> str:
    families = {4: socket.AF_INET, 16: socket.AF_INET6}
    if len(address) not in families:
        raise DecodeError("an envelope with a malformed client address")
    return socket.inet_ntop(families[len(address)], address)
