"""A request on its way to another replica. Its answer is matched by this very object, never by what it says: a delayed
answer to an older request must find nobody waiting (Kafka's simulator lost data to one that was matched by offset).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.model.ids import NodeId
from ottla.protocol.primitives import Message
from ottla.raft.config import Address

Reply = Callable[[Message], None]
"""Where the answer to a received request goes; called once."""

OnResponse = Callable[[Any, bool], None]
"""The response or None, and whether the other side is known to be gone (its port refuses connections)."""


@dataclass(slots=True, eq=False)
class Outbound:
    address: Address
    node_id: NodeId
    """-1 for a bootstrap server, whose id is not known."""
    request: Message
    timeout_ms: float
    on_response: OnResponse
