"""Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of the metadata log, changes of the voters: requests
between members of the quorum, answered by the raft node.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.deferred import Deferred


def handle(context: RequestContext, request: Any) -> Deferred:
    deferred = Deferred()
    context.broker.quorum.receive(request, context.version, deferred.resolve)
    return deferred
