"""Bodies of requests: each has a limit, and so have all that are in memory at once.

A peer may send a body slowly, and as many of them as it has connections. Above `MAX_HELD_BYTES` a body of more than
`SMALL_BYTES` is refused; small ones are always read, for the number of connections limits those.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from ottla.registry.errors import RegistryError, schema_too_large

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
MAX_BODY_BYTES = 16 << 20
MAX_HELD_BYTES = 64 << 20
SMALL_BYTES = 64 << 10


class Bodies:
    def __init__(self, schema_max_bytes: int) -> None:
        self._schema_max_bytes = schema_max_bytes
        # A schema is a JSON string here: three bytes for one, where two of UTF-8 are written as six of ASCII.
        self._max_bytes = 4 * schema_max_bytes + SMALL_BYTES
        self.held = 0

    @asynccontextmanager
    async def read(self, receive: Receive) -> AsyncIterator[bytes]:
        """The body, counted until the request has been answered. RegistryError: 413, 42209, 429, or 400
        when the peer is gone."""
        chunks: list[bytes] = []
        size = kept = 0
        problem: RegistryError | None = None
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RegistryError(400, "The client went away")
                chunk = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise RegistryError(413, f"The request body is larger than {MAX_BODY_BYTES} bytes")
                if size > self._max_bytes:
                    problem = schema_too_large(size, self._schema_max_bytes)
                elif size > SMALL_BYTES and self.held + len(chunk) > MAX_HELD_BYTES:
                    problem = RegistryError(429, "Too many large requests at once. Try again later.")
                if problem is None:
                    chunks.append(chunk)
                    kept += len(chunk)
                    self.held += len(chunk)
                else:  # read on without keeping it: who is still sending would not see the answer
                    chunks.clear()
                    self.held -= kept
                    kept = 0
            if problem is not None:
                raise problem
            yield b"".join(chunks)
        finally:
            self.held -= kept
