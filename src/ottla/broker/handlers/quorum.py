"""Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata log, changes of the voters: requests
between members of the quorum, answered by the raft node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred
from ottla.protocol.primitives import Message

if TYPE_CHECKING:
    from ottla.broker.planes import ControlPlane


def handle(context: RequestContext[ControlPlane], request: Message) -> Deferred[Message]:
    deferred: Deferred[Message] = Deferred()
    context.broker.quorum.receive(request, context.version, deferred.resolve)
    return deferred
