"""Keys and values of `ottla sql` as text, decoded by the schemas that their bytes name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla.console.errors import ConsoleError
from ottla.console.messages.decode import Decoder
from ottla.console.registry_client import ConsoleRegistry
from ottla.payloads.confluent import is_framed, unframed

if TYPE_CHECKING:
    from collections.abc import Callable


def schema_texts(registry_url: str) -> Callable[[bytes], str | None] | None:
    """None without a registry. A schema that cannot be read is asked for once, not for each record."""
    registry = ConsoleRegistry(registry_url)
    if not registry.configured:
        return None
    decoder = Decoder(registry, "registry")
    unreadable: set[int] = set()

    def text_of(data: bytes) -> str | None:
        if not is_framed(data):
            return None
        schema_id, _ = unframed(data)
        if schema_id in unreadable:
            return None
        try:
            registry.schema(schema_id)
        except ConsoleError:
            unreadable.add(schema_id)
            return None
        decoded = decoder.decode(data)
        return None if decoded.note else json.dumps(decoded.tree, ensure_ascii=False, default=str)

    return text_of
