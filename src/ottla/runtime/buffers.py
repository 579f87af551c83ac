"""Receive buffers: memory follows the bytes that have arrived, never the size that a peer announces.

Sockets read into one shared scratch buffer. Only while a frame is incomplete, a connection has its own buffer from a
small pool, which grows fourfold as bytes come in. Twenty peers that announce 100 MiB and send 1 KiB hold 16 KiB each.
"""

from __future__ import annotations

from struct import Struct

_SIZE = Struct(">i").unpack_from
SCRATCH_BYTES = 256 * 1024
_CLASSES = (16 * 1024, 128 * 1024, SCRATCH_BYTES, 1024 * 1024 + 64 * 1024)
_KEPT = (64, 16, 8, 8)


class FrameError(ValueError):
    """A length prefix that no frame can have."""


class BufferPool:
    """The scratch buffer and a few spare buffers in four sizes; larger buffers are not kept."""

    __slots__ = ("_spare", "scratch")

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._spare: tuple[list[memoryview], ...] = ([], [], [], [])

    def take(self, size: int) -> memoryview:
        for kind, capacity in enumerate(_CLASSES):
            if size <= capacity:
                spare = self._spare[kind]
                return spare.pop() if spare else memoryview(bytearray(capacity))
        return memoryview(bytearray(size))

    def give(self, buffer: memoryview) -> None:
        size = len(buffer)
        for kind, capacity in enumerate(_CLASSES):
            if size == capacity and len(self._spare[kind]) < _KEPT[kind]:
                self._spare[kind].append(buffer)


class FrameBuffer:
    """Bytes in, frames out. A frame is a view that is valid until the next call of `target` or `settle`."""

    __slots__ = ("_max_frame", "_pool", "_scratch", "_view", "end", "own", "start")

    def __init__(self, pool: BufferPool, max_frame: int) -> None:
        self._pool = pool
        self._max_frame = max_frame
        self.own: memoryview | None = None
        """The connection's buffer while a frame is incomplete; None while the shared one serves."""
        self._view = self._scratch = pool.scratch
        self.start = 0
        self.end = 0
        """The bytes between `start` and `end` have arrived and are not yet returned as a frame."""

    def limit(self, max_frame: int, *, per_read: int = SCRATCH_BYTES) -> None:
        """Set limits from the next read on: a peer before its login may hold only a little (CVE-2022-34917)."""
        self._max_frame = max_frame
        self._scratch = self._pool.scratch[:per_read]

    def target(self) -> memoryview:
        """Where the next bytes go."""
        if self.own is None:
            self._view = self._scratch
            self.start = self.end = 0
            return self._view
        return self.own[self.end :]

    def next_frame(self) -> memoryview | None:
        available = self.end - self.start - 4
        if available < 0:
            return None
        size: int = _SIZE(self._view, self.start)[0]
        if size > available:
            if size > self._max_frame:
                raise FrameError(f"a request of {size} bytes is larger than socket.request.max.bytes={self._max_frame}")
            return None
        if size < 0:
            raise FrameError(f"a request announces {size} bytes")
        start = self.start + 4
        self.start = start + size
        return self._view[start : start + size]

    @property
    def incomplete(self) -> int:
        """The size of a frame that has begun and needs a large buffer; 0 when there is none."""
        left = self.end - self.start
        if left < 4:
            return 0
        total: int = _SIZE(self._view, self.start)[0] + 4
        return total if total > left and total > _CLASSES[0] else 0

    def settle(self, *, room: bool = True) -> None:
        """Called after the frames are handled: keep an incomplete frame, make room for the rest of it, or release the
        buffer. Without `room` nothing more is read for now, and the buffered bytes are only kept.
        """
        left = self.end - self.start
        if left == 0:
            if self.own is not None:
                self.release()
            self.start = self.end = 0
            return
        if left < 4:
            total = _CLASSES[0]
        else:
            total = _SIZE(self._view, self.start)[0] + 4
        own = self.own
        if own is None and not room:
            self._move_to(self._pool.take(left))
        elif not room:
            return
        elif own is None or (total > len(own) and self.end == len(own)):
            self._move_to(self._pool.take(max(left, min(total, max(left * 4, _CLASSES[0])))))
        elif self.start + total > len(own) and self.start:
            own[:left] = own[self.start : self.end]
            self.start, self.end = 0, left

    def _move_to(self, new: memoryview) -> None:
        left = self.end - self.start
        new[:left] = self._view[self.start : self.end]
        if self.own is not None:
            self._pool.give(self.own)
        self.own = self._view = new
        self.start, self.end = 0, left

    def release(self) -> None:
        if self.own is not None:
            self._pool.give(self.own)
            self.own = None
        self._view = self._scratch
        self.start = self.end = 0
