"""With whose rights, and through which masks, messages are read and written. `span.consumer` turns it into a reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.client.settings import ClientSettings
from ottla.console.messages.decode import Decoder
from ottla.security.masking import TopicMask


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    librdkafka: Mapping[str, str]
    acting: ClientSettings | None = None
    """A delegation token's login, which librdkafka has not: then our own wire client reads and writes."""
    mask_of: Callable[[str], TopicMask | None] = lambda _: None
    """Topic -> what must not be shown of it."""
    decoder: Decoder | None = None
    """By which masked keys and values are decoded."""


Client = Mapping[str, str] | Reach
"""librdkafka's settings alone: the console's own principal, and nothing masked."""


def reach_of(client: Client) -> Reach:
    return client if isinstance(client, Reach) else Reach(librdkafka=client)
