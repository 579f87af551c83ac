"""Who may ask about delegation tokens at all: not over PLAINTEXT, not with a token, not without a name (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from ottla.broker.planes import NodePlane


def tokens_allowed(context: RequestContext[NodePlane]) -> bool:
    protocol = context.broker.config.endpoints.protocols.get(context.listener, "PLAINTEXT")
    if context.connection.token_authenticated or protocol == "PLAINTEXT":
        return False
    return not (protocol == "SSL" and context.principal == ANONYMOUS)
