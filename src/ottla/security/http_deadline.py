"""A limit for a whole HTTP exchange.

The timeout of `urllib` holds for each read of the socket: a server that sends a byte now and then keeps its caller for
ever. A `Deadline` shuts the connection down when the time is over, whatever the server sends.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from http.client import HTTPConnection, HTTPSConnection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.request import BaseHandler, HTTPHandler, HTTPSHandler, Request, build_opener

from ottla.env.http_answer import read_answer

if TYPE_CHECKING:
    import ssl


class Deadline:
    """One exchange: `open` with these handlers, and read the answer, inside the `with` block."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._expired = False

    def handlers(self, tls: ssl.SSLContext | None = None) -> tuple[HTTPHandler, HTTPSHandler]:
        """For `urllib.request.build_opener`."""
        watch = self._watch

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                watch(self.sock)

        class SecureConnection(HTTPSConnection):
            def connect(self) -> None:
                HTTPConnection.connect(self)
                watch(self.sock)  # the handshake has the same limit
                name = self._tunnel_host or self.host  # type: ignore[attr-defined]  # as HTTPSConnection does
                self.sock = self._context.wrap_socket(self.sock, server_hostname=name)  # type: ignore[attr-defined]
                watch(self.sock)

        class Plain(HTTPHandler):
            def http_open(self, req: Any) -> Any:
                return self.do_open(Connection, req)

        class Secure(HTTPSHandler):
            def https_open(self, req: Any) -> Any:
                return self.do_open(SecureConnection, req, context=self._context)  # type: ignore[attr-defined]

        return Plain(), Secure(context=tls)

    def check(self) -> None:
        """Raises TimeoutError if the connection was shut down: then the answer may have been cut."""
        if self._expired:
            raise TimeoutError(f"no whole answer in {self._seconds:g} s")

    def _watch(self, sock: socket.socket) -> None:
        with self._lock:
            self._socket = sock
        if self._expired:
            self._shut_down()

    def _end(self) -> None:
        self._expired = True
        self._shut_down()

    def _shut_down(self) -> None:
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # The method of the plain socket: that of an SSL socket would drop the state that a read uses.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket = None


def whole_answer(
    request: Request | str, limit: int, timeout_s: float, *handlers: BaseHandler, tls: ssl.SSLContext | None = None
) -> bytes:
    """The body of the answer, of at most `limit` bytes and within `timeout_s` from the connection to the last byte."""
    with Deadline(timeout_s) as deadline:
        with build_opener(*handlers, *deadline.handlers(tls)).open(request, timeout=timeout_s) as answer:
            data = read_answer(answer, limit)
        deadline.check()
        return data
