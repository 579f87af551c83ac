"""One accepted socket: bytes in to frames, pieces out to bytes; plain non-blocking calls on the event loop.

Raw sockets with add_reader/add_writer rather than transports, because a fetch answers with file regions that go out by
sendfile, which uvloop's transports do not have. Reading stops while the connection is busy or its peer does not read:
a peer can hold no more than one read's worth of requests and one response. The requests of one peer are handled for at
most a few milliseconds before other connections have their turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any

from ottla.log.results import LogSlice
from ottla.runtime.buffers import BufferPool, FrameBuffer, FrameError
from ottla.runtime.busy_poll import SMALL_BYTES
from ottla.system.sockets import MORE_FOLLOWS, NO_SENDFILE

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.runtime.listener import Listener
    from ottla.runtime.request_memory import RequestMemory

_SENDFILE_CHUNK = 1024 * 1024
_CORK_BYTES = 64 * 1024
_TURN_SECONDS = 0.002
_LAST_READS = 64
PRE_AUTHENTICATION_BYTES = 16 * 1024
"""The bytes that a peer may hold before its login, unless sasl.server.max.receive.size is set."""


class Channel:
    __slots__ = (
        "_answers",
        "_busy_poll",
        "_corked",
        "_corked_bytes",
        "_frames",
        "_handling",
        "_listener",
        "_loop",
        "_max_frame",
        "_memory",
        "_monotonic",
        "_outgoing",
        "_reading",
        "_socket",
        "_starved",
        "_turn_over",
        "_writing",
        "closed",
        "connection",
        "fd",
        "last_active",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, pool: BufferPool, max_frame: int, listener: Listener
    ) -> None:
        self._loop = loop
        self._socket = sock
        self.fd = sock.fileno()
        self._frames = FrameBuffer(pool, max_frame)
        self._max_frame = max_frame
        self._listener = listener
        self._busy_poll = listener.busy_poll
        self._memory = listener.memory
        self._monotonic = listener.monotonic
        self._answers = listener.answers
        self._starved = False
        """The request that has begun waits for memory."""
        self._outgoing: deque[Any] = deque()
        self._corked: list[bytes] | None = None
        self._corked_bytes = 0
        self._reading = False
        self._writing = False
        self._handling = False
        self._turn_over = False
        self.closed = False
        self.last_active = loop.time()
        self.connection: Connection

    def start(self, connection: Connection) -> None:
        self.connection = connection
        self._read_more()

    def limit_until_login(self, max_frame: int) -> None:
        self._frames.limit(min(max_frame, self._max_frame), per_read=PRE_AUTHENTICATION_BYTES)

    def lift_limits(self) -> None:
        self._frames.limit(self._max_frame)

    # Reading

    def _read_more(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)

    @property
    def _waiting(self) -> bool:
        """Whether an answer is not ready, or not yet read by the peer. Nothing new is read meanwhile."""
        return self.closed or self.connection.busy or bool(self._outgoing) or self._starved

    def _on_readable(self) -> None:
        if self.closed or self.connection.busy or self._outgoing or self._starved:
            self._stop_reading()
            return
        if self._turn_over:
            return
        try:
            count = self._socket.recv_into(self._frames.target())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self._frames.end += count
        self._handle_frames()
        if count <= SMALL_BYTES:
            self._busy_poll.on_small_request()

    def _handle_frames(self) -> None:
        frames, connection = self._frames, self.connection
        self.last_active = self._loop.time()
        self._handling = True
        turn_ends = 0.0
        try:
            while not connection.busy and not self._outgoing:
                frame = frames.next_frame()
                if frame is None:
                    break
                if self._corked is None and frames.start != frames.end:
                    self._corked = []  # more requests follow
                connection.on_frame(frame)
                if frames.start == frames.end:
                    break
                if not turn_ends:
                    turn_ends = self._monotonic() + _TURN_SECONDS
                elif self._monotonic() > turn_ends:
                    self._end_turn()
                    break
        except FrameError as error:
            self._listener.on_bad_frame(self, str(error))
            self.close()
        finally:
            self._handling = False
            if self._corked is not None:
                self._uncork()
        if self.closed:
            return
        if self._memory is not None and not self._has_memory(self._memory):
            self._starved = True
            frames.settle(room=False)
        elif frames.start != frames.end or frames.own is not None:
            frames.settle()

    # Memory

    def _has_memory(self, memory: RequestMemory) -> bool:
        """Reserve memory for a request that has begun to arrive; release the memory of a request that is done."""
        size = self._frames.incomplete
        if size and not self.connection.busy:
            return memory.reserve(self, size)
        if not size and not self.connection.busy:
            memory.release(self)
        return True

    @property
    def is_receiving(self) -> bool:
        return not self.connection.busy

    def on_memory(self) -> None:
        self._starved = False
        self.resume()

    def refuse_stalled(self) -> None:
        self._listener.on_bad_frame(self, "its request stalled while others wait for queued.max.request.bytes")
        self.close()

    def refuse_unread(self) -> None:
        self._listener.on_bad_frame(self, "its peer does not read the answer (ottla.response.max.queued.bytes)")
        self.close()

    def _end_turn(self) -> None:
        """Other connections come first. This peer's bytes stay in its buffer, and nothing more is read until then."""
        self._turn_over = True
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_over = False
        self.resume()

    def _uncork(self) -> None:
        """Answers to requests that came in one read leave in one write."""
        corked, self._corked = self._corked, None
        self._corked_bytes = 0
        if corked and not self.closed:
            self._send_bytes(corked[0] if len(corked) == 1 else b"".join(corked))

    def resume(self) -> None:
        """The connection is idle or the peer has read its answer: handle the buffered frames, then continue to read."""
        if self._handling or self._turn_over:
            return  # the answer was ready at once: the loop that handles frames continues by itself
        if self.closed or self.connection.busy or self._outgoing or self._starved:
            return  # as `_waiting`, without its call
        if self._frames.end > self._frames.start:
            self._handle_frames()
        elif self._memory is not None:
            self._memory.release(self)
        if not self._reading and not self._waiting:
            self._read_more()

    # Writing

    def send(self, pieces: list[Any]) -> None:
        if self.closed:
            return
        if self._outgoing:
            self._outgoing.extend(_coalesced(pieces))
        elif LogSlice in map(type, pieces):
            self._uncork()
            self._outgoing.extend(_coalesced(pieces))
            self._on_writable()
        elif self._corked is None:
            self._send_bytes(b"".join(pieces))
        else:
            data = b"".join(pieces)
            self._corked.append(data)
            self._corked_bytes += len(data)
            if self._corked_bytes > _CORK_BYTES:
                self._uncork()

    def _send_bytes(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(data):
            self._outgoing.append(memoryview(data)[sent:])
            if not self._writing:
                self._write_later()

    def _write_later(self) -> None:
        if not self._writing and not self.closed:
            self._writing = True
            self._loop.add_writer(self.fd, self._on_writable)
            if self._answers is not None:
                self._answers.hold(self, sum(len(piece) for piece in self._outgoing if type(piece) is not LogSlice))

    def _on_writable(self) -> None:
        outgoing = self._outgoing
        try:
            while outgoing:
                unsent = self._send_one(outgoing[0], more=len(outgoing) > 1)
                if unsent is not None:
                    outgoing[0] = unsent
                    self._write_later()
                    return
                outgoing.popleft()
        except OSError:
            self.close()
            return
        self.last_active = self._loop.time()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.fd)
            if self._answers is not None:
                self._answers.release(self)
            self.resume()

    def _send_one(self, piece: Any, *, more: bool) -> Any:
        """Send a piece; returns the rest of it, or None if all of it was sent."""
        if type(piece) is LogSlice:
            return self._send_region(piece)
        try:
            sent = self._socket.send(piece, MORE_FOLLOWS if more else 0)
        except (BlockingIOError, InterruptedError):
            return piece
        return None if sent == len(piece) else memoryview(piece)[sent:]

    def _send_region(self, region: LogSlice) -> LogSlice | None:
        """Send by sendfile. The slice belongs to this answer alone, so the slice itself holds the rest."""
        try:
            source = region.file.fileno()
        except UnsupportedOperation:
            return self._send_read_region(region)
        while region.length:
            try:
                sent = os.sendfile(self.fd, source, region.position, min(region.length, _SENDFILE_CHUNK))
            except (BlockingIOError, InterruptedError):
                return region
            except OSError as error:
                if error.errno in NO_SENDFILE:
                    return self._send_read_region(region)
                raise
            if sent == 0:
                raise OSError(f"{region.file.path} ends {region.length} bytes before the answer that was promised")
            region.position += sent
            region.length -= sent
        return None

    def _send_read_region(self, region: LogSlice) -> LogSlice | None:
        """Send a region by reading it in pieces: the file is encrypted at rest, or sendfile does not work for it."""
        while region.length:
            data = region.file.pread(min(region.length, _SENDFILE_CHUNK), region.position)
            if not data:
                raise OSError(f"{region.file.path} ends {region.length} bytes before the answer that was promised")
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                return region
            region.position += sent
            region.length -= sent
        return None

    # The end

    def on_hangup(self) -> None:
        """The peer has reset the connection: handle the bytes that it sent before, then close."""
        for _ in range(_LAST_READS):
            if self._waiting or self._turn_over:
                break
            self._on_readable()
        self.close()

    def close(self) -> None:
        """Close the connection; answers that were given before still leave."""
        self._uncork()
        if self.closed:
            return
        self._stop_reading()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.fd)
        self.closed = True
        self._outgoing.clear()
        if self._answers is not None:
            self._answers.release(self)
        self._frames.release()
        self._socket.close()
        if self._memory is not None:
            self._memory.release(self)
        self.connection.on_closed()
        self._listener.on_closed(self)


def _coalesced(pieces: list[Any]) -> list[Any]:
    """Neighbouring byte pieces joined, file regions kept."""
    joined: list[Any] = []
    run: list[Any] = []
    for piece in pieces:
        if type(piece) is LogSlice:
            if run:
                joined.append(b"".join(run))
                run = []
            joined.append(piece)
        else:
            run.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined
