"""A channel over TLS: the same frames, with the handshake before them and every byte through the TLS library.

The library works on memory (`MemoryBIO`), and this channel owns the socket. One call reads many TLS records, where the
library itself needs two calls for each, and answers leave in large pieces. Clients send small TLS records (librdkafka
sends one for each value), so this halves the cost of a produce. With records of 10 and 1,000 bytes a GB takes 3.5 s of
CPU instead of 7 s; with large records the cost is the same.

A peer can make this channel hold one read of `_RECEIVE_BYTES` and one encrypted piece. A file region cannot leave by
sendfile: it is read in pieces and encrypted. The plaintext channel is separate and still uses sendfile.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.log.results import LogSlice
from ottla.runtime.buffers import BufferPool
from ottla.runtime.busy_poll import SMALL_BYTES
from ottla.runtime.channel import Channel
from ottla.security.principals import PrincipalRuleError, user
from ottla.security.tls import TlsSource, peer_name
from ottla.security.tls_level import weakness

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.runtime.listener import Listener

log = get_logger(__name__)

_RECEIVE_BYTES = 64 * 1024
_SEND_BYTES = 64 * 1024
_HANDSHAKE_BYTES = 16 * 1024


class TlsChannel(Channel):
    __slots__ = ("_greeted", "_incoming", "_read", "_receive_bytes", "_sealed", "_source", "_tls", "_unsent")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        pool: BufferPool,
        max_frame: int,
        listener: Listener,
        source: TlsSource,
    ) -> None:
        super().__init__(loop, sock, pool, max_frame, listener)
        self._source = source
        self._incoming = ssl.MemoryBIO()
        self._sealed = ssl.MemoryBIO()
        self._unsent = memoryview(b"")
        """Encrypted bytes that the socket has not accepted yet."""
        self._receive_bytes = _HANDSHAKE_BYTES
        self._greeted = False
        """Whether the peer has sent a byte."""
        self._tls = source.context().wrap_bio(self._incoming, self._sealed, server_side=True)
        self._read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]  # typeshed: always bytes

    def start(self, connection: Connection) -> None:
        self.connection = connection
        self._loop.add_reader(self.fd, self._shake_hands)
        self._reading = True

    def lift_limits(self) -> None:
        self._receive_bytes = _RECEIVE_BYTES
        super().lift_limits()

    def _receive(self) -> None:
        """Encrypted bytes from the socket to the library; BlockingIOError when there are none, EOFError at the end."""
        scratch = self._source.scratch[: self._receive_bytes]
        count = self._socket.recv_into(scratch)
        if count == 0:
            raise EOFError
        self._incoming.write(scratch[:count])

    def _shake_hands(self) -> None:
        try:
            self._receive()
            self._greeted = True
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            self._flush_handshake()
            return
        except (OSError, EOFError) as error:
            self._flush_handshake()  # sends the alert with the reason
            self._handshake_failed(error)
            return
        self._flush_handshake()
        self._loop.remove_reader(self.fd)
        self._reading = False
        if self._name_peer():
            self._read_more()
            self._go_on()

    def _flush_handshake(self) -> None:
        """Writes a few KiB into an empty socket; the rest leaves with the first answer."""
        with contextlib.suppress(OSError):
            self._drain()

    def _handshake_failed(self, error: Exception) -> None:
        if not self._greeted:  # somebody looked whether the port is open: no attempt at TLS
            self.close()
            return
        reason = (
            weakness(error)
            or getattr(error, "reason", None)
            or getattr(error, "strerror", None)
            or "the peer went away"
        )
        log.warning("tls.refused", peer=f"{self.connection.client_host}:{self.connection.client_port}", reason=reason)
        self.close()

    def _name_peer(self) -> bool:
        """The principal of a client certificate; SASL, where there is any, names the client itself."""
        certificate = self._tls.getpeercert(binary_form=True)
        if self.connection.gate is not None:
            return True
        if certificate is None:
            self.connection.on_authenticated("User:ANONYMOUS", token=False)
            return True
        try:
            principal = user(self._source.mapper(peer_name(certificate)))
        except (PrincipalRuleError, ValueError) as error:
            self.connection.refuse(f"the certificate's name makes no principal: {error}")
            return False
        self.connection.on_authenticated(principal, token=False)
        return True

    def _on_readable(self) -> None:
        """The library returns one record at a time: read all available records, then handle the whole frames."""
        if self._waiting:
            self._stop_reading()
            return
        if self._turn_over or not self._reading:
            return
        total = 0
        target = self._frames.target()
        room = len(target)
        read = self._read
        over = False
        try:
            if not self._incoming.pending:
                self._receive()
            while total < room:
                count = read(room - total, target[total:])
                if count == 0:
                    over = True
                    break
                total += count
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            pass
        except (OSError, EOFError):
            over = True
        if total:
            self._frames.end += total
            self._handle_frames()
            if total <= SMALL_BYTES:
                self._busy_poll.on_small_request()
        if over:
            self.close()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Bytes that the library has already make no socket readable: come back for them by ourselves."""
        if not self.closed and not self._waiting and (self._incoming.pending or self._tls.pending()):
            self._loop.call_soon(self._on_readable)

    def resume(self) -> None:
        super().resume()
        if not self._handling:
            self._go_on()

    def _send_bytes(self, data: bytes) -> None:
        try:
            unsent = self._push(data)
        except OSError:
            self.close()
            return
        if unsent is not None:
            self._outgoing.append(unsent)
            if not self._writing:
                self._write_later()

    def _send_one(self, piece: Any, *, more: bool) -> Any:  # noqa: ARG002 - TLS has no MSG_MORE
        if type(piece) is LogSlice:
            return self._send_region(piece)
        return self._push(piece)

    def _drain(self) -> bool:
        """Whether everything that is encrypted has left."""
        unsent = self._unsent or memoryview(self._sealed.read())
        while unsent:
            try:
                sent = self._socket.send(unsent)
            except (BlockingIOError, InterruptedError):
                self._unsent = unsent
                return False
            unsent = unsent[sent:] or memoryview(self._sealed.read())
        self._unsent = unsent
        return True

    def _push(self, data: Any) -> memoryview | None:
        """The rest of `data` if the socket accepts no more; an empty rest if only encrypted bytes wait."""
        view = memoryview(data)
        while view and self._drain():
            self._tls.write(view[:_SEND_BYTES])
            view = view[_SEND_BYTES:]
        return None if not view and self._drain() else view

    def _send_region(self, region: LogSlice) -> LogSlice | None:
        while region.length and self._drain():
            data = region.file.pread(min(region.length, _SEND_BYTES), region.position)
            if not data:
                raise OSError(f"{region.file.path} ends {region.length} bytes before the answer that was promised")
            self._tls.write(data)
            region.position += len(data)
            region.length -= len(data)
        return None if not region.length and self._drain() else region
