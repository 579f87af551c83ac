"""Requests of the HTTP servers that h11 reads and this module refuses, because another program may read them differently.
Every answer gets the security headers that the application has not set (`web_headers.py`).

- `Content-Length` beside `Transfer-Encoding`, and `Transfer-Encoding` in HTTP/1.0: a proxy may use the other length, and
  its next request would begin inside this body (RFC 9112, 6.1 and 6.3).
- A target that is no path (`*`, `http://host/path`): rules about paths would not match the target.
- A body in tiny chunks: each chunk costs the loop some microseconds, however few bytes the chunk has.

Nothing here reads the clock, a file or the network.
"""

from __future__ import annotations

from typing import Any

import h11

from ottla.security.web_headers import missing_headers

FREE_CHUNKS = 256
BYTES_A_CHUNK = 512
"""A body may have `FREE_CHUNKS` chunks, and one more for each `BYTES_A_CHUNK` bytes that the server has received."""


class StrictConnection(h11.Connection):
    """A connection of a server that refuses ambiguous requests with RemoteProtocolError, and completes the heads of answers."""

    _chunks = 0
    _body_bytes = 0
    _refusal = ""

    def send(self, event: Any) -> Any:
        """Every answer passes here, also the answers that uvicorn makes itself (400, 500)."""
        if isinstance(event, h11.Response):
            added = missing_headers(name for name, _ in event.headers)
            event = h11.Response(
                status_code=event.status_code, headers=[*event.headers.raw_items(), *added], reason=event.reason
            )
        return super().send(event)

    def next_event(self) -> Any:
        if self._refusal:
            raise h11.RemoteProtocolError(self._refusal)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body_bytes = 0
            self._check_head(event)
        elif isinstance(event, h11.Data):
            self._count(event)
        return event

    def _check_head(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if not request.target.startswith(b"/"):
            self._refuse("the target is not a path")
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names:
            self._refuse("the request has both Content-Length and Transfer-Encoding")
        if request.http_version < b"1.1":
            self._refuse("Transfer-Encoding in HTTP/1.0")

    def _count(self, data: h11.Data) -> None:
        self._chunks += data.chunk_start
        self._body_bytes += len(data.data)
        if self._chunks > FREE_CHUNKS + self._body_bytes // BYTES_A_CHUNK:
            self._refuse("the body comes in too small chunks")

    def _refuse(self, reason: str) -> None:
        """The connection returns no further event."""
        self._refusal = reason
        raise h11.RemoteProtocolError(reason)
