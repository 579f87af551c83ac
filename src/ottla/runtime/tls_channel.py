"""A channel over TLS: the same frames, with the handshake before them and every byte through the TLS library.

A file region cannot leave by sendfile here: it is read in pieces and encrypted. The plaintext channel is not touched by
any of this.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

from ottla.env.logging import get_logger
from ottla.log.results import LogSlice
from ottla.runtime.buffers import BufferPool
from ottla.runtime.channel import Channel
from ottla.security.principals import PrincipalRuleError, user
from ottla.security.tls import TlsSource, peer_name

if TYPE_CHECKING:
    from ottla.broker.connection import Connection
    from ottla.runtime.listener import Listener

log = get_logger(__name__)

_REGION_CHUNK = 256 * 1024
_READS_PER_TURN = 16


class TlsChannel(Channel):
    __slots__ = ("_source", "_tls")

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
        self._tls = source.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._socket = self._tls

    def start(self, connection: Connection) -> None:
        self.connection = connection
        self._loop.add_reader(self.fd, self._shake_hands)
        self._reading = True

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._handshake_writes(wanted=False)
            return
        except ssl.SSLWantWriteError:
            self._handshake_writes(wanted=True)
            return
        except OSError as error:
            self._handshake_failed(error)
            return
        self._handshake_writes(wanted=False)
        if not self._name_peer():
            return
        self._loop.remove_reader(self.fd)
        self._reading = False
        self._read_more()
        self._on_readable()

    def _handshake_writes(self, *, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self.fd, self._shake_hands)
        elif not wanted and self._writing:
            self._loop.remove_writer(self.fd)
        self._writing = wanted

    def _handshake_failed(self, error: OSError) -> None:
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
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
        """One record at a time is all that the library gives: take several, then handle what is whole."""
        if self._waiting:
            self._stop_reading()
            return
        if self._turn_over or not self._reading:
            return
        total = 0
        target = self._frames.target()
        try:
            for _ in range(_READS_PER_TURN):
                if total == len(target):
                    break
                count = self._tls.recv_into(target[total:])
                if count == 0:
                    break
                total += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.close()
            return
        else:
            if total == 0:
                self.close()
                return
        if total:
            self._frames.received(total)
            self._handle_frames()
            self._go_on()

    def _go_on(self) -> None:
        """Bytes that the library has decrypted already make no socket readable: come back for them by ourselves."""
        if not self.closed and not self._waiting and self._tls.pending():
            self._loop.call_soon(self._on_readable)

    def resume(self) -> None:
        super().resume()
        if not self._handling:
            self._go_on()

    def _send_bytes(self, data: bytes) -> None:
        try:
            rest = self._push(data)
        except OSError:
            self.close()
            return
        if rest is not None:
            self._outgoing.append(rest)
            if not self._writing:
                self._write_later()

    def _send_one(self, piece: Any, *, more: bool) -> Any:  # noqa: ARG002 - TLS has no MSG_MORE
        if type(piece) is LogSlice:
            return self._send_region(piece)
        return self._push(piece)

    def _push(self, data: Any) -> memoryview | None:
        """What is left of `data` when the socket takes no more."""
        view = memoryview(data)
        while view:
            try:
                sent = self._tls.send(view)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return view
            view = view[sent:]
        return None

    def _send_region(self, region: LogSlice) -> LogSlice | None:
        while region.length:
            data = region.file.pread(min(region.length, _REGION_CHUNK), region.position)
            if not data:
                raise OSError(f"{region.file.path} ends {region.length} bytes before the answer that was promised")
            rest = self._push(data)
            sent = len(data) - (len(rest) if rest is not None else 0)
            region.position += sent
            region.length -= sent
            if rest is not None:
                return region
        return None
