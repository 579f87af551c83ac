"""A request to a replica. Its response is matched by this object, never by content.

A delayed response to an older request must be ignored: Kafka's simulator lost data when it matched responses by offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.model.ids import NodeId
from ottla.protocol.primitives import Message
from ottla.raft.config import Address

Reply = Callable[[Message], None]
"""Sends the response to a received request; called once."""

OnResponse = Callable[[Any, bool], None]
"""The response or None, and whether the port of the replica refuses connections."""


@dataclass(slots=True, eq=False)
class Outbound:
    address: Address
    node_id: NodeId
    """-1 for a bootstrap server, whose id is unknown."""
    request: Message
    timeout_ms: float
    on_response: OnResponse
