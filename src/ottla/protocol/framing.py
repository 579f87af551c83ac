"""Bytes in, frames out: an int32 length and that many bytes. No socket, no clock; for clients, tools and tests.

A frame's memory grows only as its bytes arrive: an announced length is a promise to check, never a size to allocate.
After a FramingError the stream has no boundaries any more: close it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.protocol.primitives import DecodeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_MAX_BYTES = 100 * 1024 * 1024
"""Kafka's default of socket.request.max.bytes."""

_COMPACT_FROM = 65536
"""Consumed bytes are dropped in steps of at least this size, so that many small frames do not cost a move each."""


class FramingError(DecodeError):
    """A length that no frame can have."""


class FrameDecoder:
    """Feed it what the socket gave, in any cut; take whole frames, without their length, in order."""

    __slots__ = ("_buffer", "_max_bytes", "_pos")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._buffer = bytearray()
        self._pos = 0
        self._max_bytes = max_bytes

    @property
    def pending(self) -> int:
        """Bytes that were fed and not yet taken; not 0 at the end of a stream means that it ended inside a frame."""
        return len(self._buffer) - self._pos

    def feed(self, data: Buffer) -> None:
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame, or None until more bytes are fed."""
        start = self._pos + 4
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._pos : start], "big", signed=True)
        if size < 0:
            raise FramingError(f"a frame of {size} bytes")
        if size > self._max_bytes:
            raise FramingError(f"a frame of {size} bytes; the limit is {self._max_bytes}")
        end = start + size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            frame = bytes(view[start:end])
        self._pos = end
        self._drop_consumed()
        return frame

    def frames(self) -> Iterator[bytes]:
        """All frames that are whole by now."""
        while (frame := self.next_frame()) is not None:
            yield frame

    def _drop_consumed(self) -> None:
        if self._pos == len(self._buffer):
            self._buffer.clear()
            self._pos = 0
        elif self._pos >= _COMPACT_FROM:
            del self._buffer[: self._pos]
            self._pos = 0
